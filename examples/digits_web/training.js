// Training of the network of examples/digits.py by WebAssembly modules, in browsers and in Node.
import * as initialModule from "./initial.js";
import * as predictModule from "./predict.js";
import * as stepModule from "./step.js";

// Reads a file beside this one.
async function bytesOf(name) {
  const place = new URL(name, import.meta.url);
  if (place.protocol === "file:") return new Uint8Array(await (await import("node:fs/promises")).readFile(place));
  return new Uint8Array(await (await fetch(place)).arrayBuffer());
}

const argumentsOf = (module) => module.leaves.filter((leaf) => leaf.argument).map((leaf) => leaf.name);

export async function trainer(seed = 0) {
  const [initial, predict, step] = await Promise.all([initialModule, predictModule, stepModule].map((m) => m.load()));
  const { train, test, pixels, batch } = JSON.parse(new TextDecoder().decode(await bytesOf("digits.json")));
  const data = await bytesOf("digits.bin");
  let end = 0;
  const next = (length) => data.subarray(end, (end += length));
  const [trainImages, trainLabels, testImages, testLabels] = [train * pixels, train, test * pixels, test].map(next);

  // The results of `initial` are the first arguments of `step`; the parameters come first, as arguments of `predict`.
  const state = argumentsOf(stepModule).slice(0, -2);
  const parameters = argumentsOf(predictModule).slice(0, -1);
  Object.values(initial.call({ seed: [seed] })).forEach((values, n) => step.arrays[state[n]].set(values));
  const { images, labels } = step.arrays;
  let steps = 0;

  return {
    test, pixels, testImages, testLabels,
    // Trains on the next batch; returns the loss. The state stays in the module's memory.
    step() {
      for (let row = 0; row < batch; ++row) {
        const from = ((steps * batch + row) * 967) % train;
        images.set(trainImages.subarray(from * pixels, (from + 1) * pixels), row * pixels);
        labels[row] = trainLabels[from];
      }
      steps += 1;
      return step.call({}).out[0];
    },
    // The digits that the network sees in the test images, and the share of right ones.
    test_now() {
      parameters.forEach((name, n) => predict.arrays[name].set(step.arrays[state[n]]));
      const { out } = predict.call({ images: testImages });
      return { guesses: out, accuracy: testLabels.filter((label, n) => label === Number(out[n])).length / test };
    },
  };
}
