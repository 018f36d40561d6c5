"""Pages in a browser without a screen: pointing, tabs, zoom, light and dark, four thousand equations, no network.

`make test-pages` runs them where Chromium is installed, and says what is missing otherwise.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-pages")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"),
    pytest.mark.skipif(sys.platform != "linux", reason="run on Linux"),
]


def layer(x: Any, w: Any) -> Any:
    h = jnp.tanh(x @ w)
    return jnp.sort(h * 2.0, axis=1).sum()


def long_program(x: Any) -> Any:
    for step in range(570):
        x = jnp.sin(x) * 1.0001 + x
        x = jnp.sort(x) if step % 50 == 49 else x
    return x.sum()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # the sandbox needs rights that containers do not have
        options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


class Opened:
    """A page in a browser, with what it asked for and what went wrong."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1500, "height": 900}, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]")

    def lit(self, where: str) -> list[str]:
        return self.page.eval_on_selector_all(f"{where} .lit", "found => found.map(e => e.textContent)")

    def style(self, name: str) -> str:
        return self.page.evaluate(f"getComputedStyle(document.body).{name}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = rlx.inspect(rlx.grad(layer, argnums=(0, 1)))(np.ones((64, 32), "f4"), np.ones((32, 32), "f4"))
    return found.save(tmp_path_factory.mktemp("pages") / "layer.html")


@pytest.fixture
def opened(browser: Any, saved: Path) -> Iterator[Opened]:
    found = Opened(browser, saved)
    yield found
    assert found.errors == [] and found.requests == [saved.as_uri()]  # nothing but the file itself
    found.context.close()


def test_pointing_at_a_line_lights_its_equations_and_kernels(opened: Opened) -> None:
    opened.page.hover("#lines .made:has-text('jnp.tanh')")
    assert any(text.startswith("tanh") for text in opened.lit("#graph"))
    assert any("tanh" in text for text in opened.lit("#made"))
    assert len(opened.lit("#lines")) == 1
    opened.page.hover("header")
    assert opened.page.query_selector(".lit") is None


def test_pointing_at_an_equation_lights_its_line_and_says_what_it_is(opened: Opened) -> None:
    opened.page.hover("#graph .node:has-text('dot_general') >> nth=0")
    assert any("x @ w" in text for text in opened.lit("#lines"))
    assert "dot_general" in opened.page.text_content("#graph > p")
    assert opened.lit("#made")


def test_pointing_at_a_kernel_lights_its_equations(opened: Opened) -> None:
    opened.page.hover("#part-kernels .kernel:has-text('Sort sort') >> nth=0")
    (equation,) = opened.lit("#graph")
    assert equation.startswith("sort") and any("jnp.sort" in text for text in opened.lit("#lines"))


def test_each_product_lights_a_kernel_of_its_own(opened: Opened) -> None:
    lit = []
    for number in range(opened.page.locator("#graph .node:has-text('dot_general')").count()):
        opened.page.hover(f"#graph .node:has-text('dot_general') >> nth={number}")
        (kernel,) = opened.lit("#part-kernels")
        assert "dot_general" in kernel
        lit.append(kernel)
    assert len(set(lit)) == len(lit) == 3


def test_kernels_have_numbers_hues_bytes_and_the_users_lines(opened: Opened) -> None:
    rows = opened.page.eval_on_selector_all(".kernel", "found => found.map(e => e.innerText)")
    assert [row.split()[0] for row in rows] == [str(number) for number in range(len(rows))]
    assert all("test_pages.py:" in row and "iB" in row for row in rows)
    hues = opened.page.eval_on_selector_all(".kernel i", "found => found.map(e => getComputedStyle(e).backgroundColor)")
    assert len(set(hues)) == len(hues)
    assert "x" in opened.page.eval_on_selector_all(".node.input", "found => found.map(e => e.textContent)")
    shapes = opened.page.eval_on_selector_all("svg .shape", "found => found.map(e => e.textContent)")
    assert "f32[64,32]" in shapes


def test_pointing_at_a_loop_lights_its_lines(opened: Opened) -> None:
    opened.page.click("#tab-loops")
    opened.page.hover("#part-loops pre:has-text('= tanh(') >> nth=0")
    assert any("jnp.tanh" in text for text in opened.lit("#lines")) and opened.lit("#graph")


@pytest.mark.parametrize("name", ["llvm", "assembly", "fusion", "memory", "statistics", "traced"])
def test_tabs_show_one_part_each(opened: Opened, name: str) -> None:
    opened.page.click(f"#tab-{name}")
    assert opened.page.is_visible(f"#part-{name}") and not opened.page.is_visible("#part-kernels")
    assert opened.page.text_content(f"#part-{name}").strip()
    opened.page.click("#tab-kernels")
    assert opened.page.is_visible("#part-kernels") and not opened.page.is_visible(f"#part-{name}")


def test_pointing_at_memory_lights_the_kernels_of_its_life(opened: Opened) -> None:
    opened.page.click("#tab-memory")
    drawn = len(opened.page.query_selector_all("rect.buffer"))
    assert drawn >= 2 and len(opened.page.query_selector_all("#part-memory .row")) == drawn
    assert "kernel, in order of execution" in opened.page.text_content("#part-memory svg")
    opened.page.hover("rect.buffer >> nth=0")
    assert opened.lit("#graph")


def test_the_graph_zooms_and_moves(opened: Opened) -> None:
    def view() -> list[float]:
        return [float(number) for number in opened.page.get_attribute("svg.graph", "viewBox").split()]

    before = view()
    opened.page.click("[id='zoom-+']")
    closer = view()
    assert closer[2] == pytest.approx(0.7 * before[2])
    box = opened.page.query_selector("svg.graph").bounding_box()
    x, y = box["x"] + 20, box["y"] + box["height"] - 60
    opened.page.mouse.move(x, y)
    opened.page.mouse.wheel(0, 100)
    now = "+document.querySelector('svg.graph').getAttribute('viewBox').split(' ')[2]"
    opened.page.wait_for_function(f"{now} > {closer[2]}")
    wheeled = view()
    opened.page.mouse.down()
    opened.page.mouse.move(x + 60, y)
    opened.page.mouse.up()
    assert view()[0] < wheeled[0] and view()[2] == wheeled[2]
    opened.page.click("#zoom-all")
    nodes = len(opened.page.query_selector_all(".node"))
    inside = """() => {
        const box = document.querySelector("svg.graph").getBoundingClientRect();
        const within = b => b.top >= box.top && b.bottom <= box.bottom && b.left >= box.left && b.right <= box.right;
        return [...document.querySelectorAll(".node")].filter(n => within(n.getBoundingClientRect())).length;
    }"""
    assert opened.page.evaluate(inside) == nodes


@pytest.mark.parametrize("width", [390, 800])
def test_a_narrow_screen_scrolls_down_only(browser: Any, saved: Path, width: int) -> None:
    opened = Opened(browser, saved)
    opened.page.set_viewport_size({"width": width, "height": 844})
    for name in ("kernels", "loops", "fusion", "memory", "statistics", "traced"):
        opened.page.click(f"#tab-{name}")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, name
    boxes = [opened.page.query_selector(panel).bounding_box() for panel in ("#lines", "#graph", "#made")]
    assert all(box["width"] > 0.9 * width for box in boxes)
    assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]
    opened.context.close()


def test_light_and_dark(browser: Any, saved: Path) -> None:
    """As the system says, until the button says otherwise."""
    for scheme, other in (("light", "dark"), ("dark", "light")):
        opened = Opened(browser, saved, color_scheme=scheme)
        first = opened.style("backgroundColor")
        assert (first == "rgb(255, 255, 255)") == (scheme == "light")
        opened.page.click("#theme")
        assert opened.style("backgroundColor") != first
        assert opened.style("colorScheme") == other
        opened.context.close()


def test_a_notebook_shows_it_in_a_frame(browser: Any, tmp_path: Path) -> None:
    markup = rlx.inspect(lambda x: jnp.tanh(x) * 2.0)(np.ones(8, "f4"))._repr_html_()
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><html data-ready=yes><body>{markup}</body></html>", "utf-8")
    opened = Opened(browser, file)
    inner = opened.page.frame_locator("iframe")
    inner.locator("html[data-ready=yes]").wait_for(state="attached")
    inner.locator(".node", has_text="tanh").hover()
    assert inner.locator(".node.lit").count() == 1 and opened.errors == []
    opened.context.close()


def test_four_thousand_equations_open_in_two_seconds(browser: Any, tmp_path: Path) -> None:
    found = rlx.inspect(rlx.grad(long_program))(np.ones(64, np.float32))
    path = found.save(tmp_path / "long.html")
    opened = Opened(browser, path)
    equations = len(found.mir[-1].program.equations)
    assert equations >= 4000 and len(opened.page.query_selector_all(".node")) == equations + 1
    # the time of the script and of the first picture, which a busy machine lengthens: the processor's
    metrics = {m["name"]: m["value"] for m in _metrics(opened)}
    assert metrics["TaskDuration"] < 2.0, metrics["TaskDuration"]
    opened.context.close()


def _metrics(opened: Opened) -> list[dict[str, Any]]:
    session = opened.context.new_cdp_session(opened.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready=yes]")
    return session.send("Performance.getMetrics")["metrics"]


# ------------------------------------------------------------- splats
_MIDDLE = """() => {
    const canvas = document.getElementById("scene"), copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const context = copy.getContext("2d");
    context.drawImage(canvas, 0, 0);
    const data = context.getImageData(0, 0, copy.width, copy.height).data;
    let [x, y, total] = [0, 0, 0];
    for (let n = 0; n < data.length; n += 4) {
        x += data[n] * ((n / 4) % copy.width); y += data[n] * Math.floor(n / 4 / copy.width); total += data[n];
    }
    return [x / total, y / total, total];
}"""


def test_a_scene_of_splats_turns(browser: Any, tmp_path: Path) -> None:
    """A red splat above a ring of dim ones: it is in the upper half, follows the mouse, and grows with the wheel."""
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    ring = np.stack([np.cos(angle), 0 * angle, np.sin(angle)], -1)
    points = np.concatenate([ring, [[0.0, 0.8, 0.0], [0.9 * np.sin(0.5), 0.0, 0.9 * np.cos(0.5)]]])
    colours = np.concatenate([np.full((12, 3), [0.0, 0.2, 0.2]), [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    scene = rlx.splat.init_from_points(points, colours, degree=0)
    scene = scene._replace(logits=np.full(14, 3.0, "f4"), log_scales=np.full((14, 3), -2.0, "f4"))
    path = tmp_path / "scene.html"
    path.write_text(rlx.splat.viewer_page(scene, "a ring"), encoding="utf-8")
    opened = Opened(browser, path)
    x, y, total = opened.page.evaluate(_MIDDLE)
    assert total > 0 and y < 450 and abs(x - 750) < 150
    opened.page.mouse.move(700, 450)
    opened.page.mouse.down()
    opened.page.mouse.move(700, 520)
    opened.page.mouse.up()
    opened.page.wait_for_timeout(300)
    tilted = opened.page.evaluate(_MIDDLE)
    assert tilted[1] != y
    opened.page.mouse.wheel(0, -500)
    opened.page.wait_for_timeout(300)
    assert opened.page.evaluate(_MIDDLE)[2] > 1.5 * tilted[2]
    opened.page.focus("#scene")
    before = opened.page.evaluate("canvas.toDataURL()")
    opened.page.keyboard.press("ArrowRight")
    opened.page.wait_for_timeout(300)
    assert opened.page.evaluate("canvas.toDataURL()") != before
    assert opened.errors == [] and opened.requests == [path.as_uri()]
    opened.context.close()
