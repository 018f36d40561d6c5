"""rlx splat: a scene trained from a folder, and a page of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from splat_scenes import camera_at
from test_splat_files import colmap_text

from rlx.cli import main
from rlx.errors import FileFormatError, OptionError
from rlx.splat import init_from_points, load_colmap, load_ply, load_views, save_ply, save_png

SIZE = 16


def folder_of(folder: Path) -> None:
    """A reconstruction of four points with two views."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4, 3)) * 0.5
    truth = init_from_points(points, rng.uniform(size=(4, 3)), degree=0)
    (folder / "images").mkdir()
    (folder / "sparse").mkdir()
    lines = []
    for number, angle in enumerate((0.0, 1.5)):
        camera = camera_at(SIZE, SIZE, angle=angle, dtype="float32")
        quat = np.roll(_quaternion(np.float64(camera.rotation)), 1)
        row = [number, *quat, *camera.translation, 1, f"{number}.png"]
        lines += [" ".join(map(str, row)), ""]
        save_png(folder / "images" / f"{number}.png", truth.render(camera, SIZE, SIZE).rgb)
    focal = float(camera.fx)
    (folder / "sparse" / "cameras.txt").write_text(f"1 PINHOLE {SIZE} {SIZE} {focal} {focal} 8 8\n")
    (folder / "sparse" / "images.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{n} {x} {y} {z} 128 128 128 0" for n, (x, y, z) in enumerate(points)]
    (folder / "sparse" / "points3D.txt").write_text("\n".join(rows))


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(rotation).as_quat()


@pytest.mark.thorough
def test_train_and_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_of(tmp_path)
    assert main(["splat", "train", str(tmp_path), "--steps", "60", "--degree", "1"]) == 0
    printed = capsys.readouterr().out
    assert "2 views, 4 points" in printed and "step 60" in printed
    losses = [float(line.split()[3]) for line in printed.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0]
    assert load_ply(tmp_path / "scene.ply").harmonics.shape[1:] == (4, 3)
    assert main(["splat", "view", str(tmp_path / "scene.ply")]) == 0
    assert (tmp_path / "scene.html").read_text().startswith("<!doctype html>")


def test_view_and_its_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scene.ply"
    save_ply(path, init_from_points(np.eye(3), np.ones((3, 3))))
    assert main(["splat", "view", str(path), "--output", str(tmp_path / "page.html"), "--y-up"]) == 0
    assert "3 splats" in capsys.readouterr().out and (tmp_path / "page.html").exists()
    path.write_bytes(path.read_bytes()[:-5])
    wrong = (["view", str(path)], "truncated"), (["view", "absent.ply"], "no file"), (["train", "absent"], "no folder")
    for words, said in (*wrong, (["trian", "x"], "train"), (["train", str(tmp_path)], "no COLMAP")):
        assert main(["splat", *words]) != 0
        assert said in capsys.readouterr().err


def test_views_are_scaled_and_stay_in_their_folder(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    colmap_text(tmp_path, "PINHOLE 8 6 50 55 4 3")
    images = load_colmap(tmp_path).images
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3)) / 255
    for image in images:
        save_png(tmp_path / image.name, pixels)
    first, _ = load_views(images, tmp_path, downscale=2)
    np.testing.assert_allclose(first.image, pixels.reshape(3, 2, 4, 2, 3).mean((1, 3)), atol=1.1 / 255)
    assert [float(x) for x in first.camera[2:]] == [25, 27.5, 2, 1.5]
    with pytest.raises(FileFormatError, match="outside"):
        load_views([images[0]._replace(name="../../etc/passwd")], tmp_path)
    with pytest.raises(FileFormatError, match="Pillow"):
        load_views([images[0]._replace(name="absent.png")], tmp_path)
    with pytest.raises(OptionError, match="downscale"):
        load_views(images, tmp_path, downscale=0)
