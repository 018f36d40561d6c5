"""A server with OpenAI's interface for one model: completions, chats, tools and embeddings, streamed or whole.

`python examples/serve.py MODEL` listens on 127.0.0.1:8000. MODEL is a GGUF file, a folder, or smollm2. Requests are
generated together, a token of each per step, and may have JSON schemas: `pip install "rlx[lm,grammar,server]"`.
"""

import argparse
import asyncio
import json
import queue
import threading
import time
import uuid

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from rlx import lm
from rlx.cli.generate import model_path
from rlx.errors import RlxError


class Engine:
    """A thread that makes the scheduler's steps; requests come in by a queue, tokens go out by one for each request."""

    def __init__(self, model, rows):
        self.model, self.scheduler = model, lm.Scheduler(model, rows)
        self.jobs, self.outputs = queue.Queue(), {}
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            while not self.scheduler.busy or not self.jobs.empty():
                self.jobs.get()()
            try:
                steps = self.scheduler.step()
            except Exception as error:  # a request's grammar, say: the server goes on without these requests
                for number in list(self.outputs):
                    self.scheduler.cancel(number)
                    self.outputs.pop(number)(error)
                continue
            for progress in steps:
                send = self.outputs.get(progress.request)
                if send is not None:
                    send(progress)
                if progress.finish is not None:
                    self.outputs.pop(progress.request, None)

    async def submit(self, prompt, options):
        """The number of a request, and the queue of its steps. Raises the error of a request that is refused."""
        loop, found = asyncio.get_running_loop(), asyncio.Queue()

        def send(value):
            loop.call_soon_threadsafe(found.put_nowait, value)

        def job():
            try:
                number = self.scheduler.submit(prompt, **options)
                self.outputs[number] = send
                send(number)
            except RlxError as error:
                send(error)

        self.jobs.put(job)
        number = await found.get()
        if isinstance(number, Exception):
            raise number
        return number, found

    async def steps(self, number, found):
        """The steps of a request; it is cancelled if the client goes away."""
        try:
            finish = None
            while finish is None:
                step = await found.get()
                if isinstance(step, Exception):
                    raise step
                finish = step.finish
                yield step
        finally:
            self.jobs.put(lambda: (self.outputs.pop(number, None), self.scheduler.cancel(number)))


def options_of(model, body, room):
    """The arguments of Scheduler.submit in a request's body."""
    numbers = {name: body.get(name, usual) for name, usual in (("temperature", 1.0), ("top_p", 1.0), ("top_k", 0))}
    seed = uuid.uuid4().int % 2**32 if body.get("seed") is None else body["seed"]
    bias = {int(token): number for token, number in (body.get("logit_bias") or {}).items()}
    sampling = lm.Sampling(**numbers, seed=seed, bias=bias)
    form, processors = body.get("response_format") or {}, []
    if form.get("type") in ("json_schema", "json_object"):
        schema = form["json_schema"]["schema"] if form["type"] == "json_schema" else {"type": "object"}
        processors = [lm.Grammar.of_schema(model, schema).processor()]
    logprobs = body.get("top_logprobs", 0) if body.get("logprobs") else None
    most = body.get("max_completion_tokens") or body.get("max_tokens") or max(room, 1)
    return {"max_tokens": most, "sampling": sampling, "processors": processors, "logprobs": logprobs}


async def pieces_of(model, prompt, steps, stop):
    """Text pieces with their tokens; the last has the reason for the end, and the numbers of tokens."""
    detokenise, count, finish = lm.Utf8(model.tokenizer, prompt[-4:]), 0, None
    async for step in steps:
        count, finish = count + (step.token is not None), step.finish
        text = "" if step.token is None else detokenise.add(getattr(step.token, "token", step.token))
        yield stop.add(text + (detokenise.rest() if finish else "")), step.token, None
        if stop.ended:
            finish = "stop"
            break
    sizes = {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}
    yield stop.rest(), None, (finish, sizes)


async def whole_of(pieces):
    """The pieces in one: a call of a tool is known when it has ended."""
    parts = [part async for part in pieces]
    yield "".join(p[0] for p in parts), None, parts[-1][2]


def logprobs_of(model, tokens):
    def shown(token, number):
        return {"token": model.tokenizer.decode([token], special=True), "logprob": number}

    found = [t for t in tokens if isinstance(t, lm.Likely)]
    return {"content": [shown(t.token, t.logprob) | {"top_logprobs": [shown(*p) for p in t.top]} for t in found]}


def answering(engine, name, chat):
    kind = "chat.completion" if chat else "text_completion"

    async def answer(request):
        try:
            body = await request.json()
            tokenizer, stop = engine.model.tokenizer, lm.StopTexts(body.get("stop") or ())
            tools = body.get("tools") if chat else None
            text = lm.chat_text(body["messages"], tokenizer, tools=tools) if chat else body["prompt"]
            prompt = tokenizer.encode_chat(text) if chat else tokenizer.encode(text)
            room = engine.scheduler.capacity - len(prompt)
            steps = engine.steps(*await engine.submit(prompt, options_of(engine.model, body, room)))
        except (RlxError, KeyError, TypeError, ValueError) as error:
            told = {"message": f"{type(error).__name__}: {error}", "type": "invalid_request_error"}
            return JSONResponse({"error": told}, 400)
        found = pieces_of(engine.model, prompt, steps, stop)
        head = {"id": f"cmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}

        def choice(text, finish, tokens, streamed):
            part = lm.answer_message(text, tools) if chat else {}
            said = {"delta" if streamed else "message": part} if chat else {"text": text}
            said["logprobs"] = logprobs_of(engine.model, tokens) if body.get("logprobs") else None
            return [{"index": 0, **said, "finish_reason": "tool_calls" if "tool_calls" in part else finish}]

        async def events():
            async for text, value, end in whole_of(found) if tools else found:
                finish, usage = end or (None, None)
                part = {"object": kind + ".chunk" * chat, "usage": usage}
                part["choices"] = choice(text, finish, [value], True)
                if text or end or body.get("logprobs"):
                    yield f"data: {json.dumps(head | part)}\n\n"
            yield "data: [DONE]\n\n"

        if body.get("stream"):
            return StreamingResponse(events(), media_type="text/event-stream")
        parts = [part async for part in found]
        finish, usage = parts[-1][2]
        whole = choice("".join(p[0] for p in parts), finish, [p[1] for p in parts], False)
        return JSONResponse(head | {"object": kind, "choices": whole, "usage": usage})

    return answer


def application(model, name, rows=8):
    """The server's application, as ASGI has it."""
    engine = Engine(model, rows)

    async def embeddings(request):
        texts = (await request.json())["input"]
        texts = [texts] if isinstance(texts, str) else texts
        vectors = await asyncio.to_thread(lambda: lm.embed_texts(model, [*map(model.tokenizer.encode, texts)]).tolist())
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        return JSONResponse({"object": "list", "model": name, "data": data})

    async def models(request):
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "local"}]})

    posted = {"embeddings": embeddings, "completions": answering(engine, name, False)}
    posted["chat/completions"] = answering(engine, name, True)
    routes = [Route(f"/v1/{place}", function, methods=["POST"]) for place, function in posted.items()]
    return Starlette(routes=[Route("/v1/models", models), *routes])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="a GGUF file, a folder, or smollm2")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=8, help="requests that are generated at once")
    options = parser.parse_args()
    served = application(lm.load(model_path(options.model)), options.model, options.rows)
    uvicorn.run(served, host="127.0.0.1", port=options.port)
