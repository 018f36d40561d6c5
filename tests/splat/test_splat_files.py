"""PLY files, COLMAP reconstructions and PNG images: round trips, other writers' layouts, and damaged files."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from rlx.errors import FileFormatError, OptionError, ShapeError, UnsupportedError
from rlx.splat import Splats, init_from_points, load_colmap, load_ply, save_ply, save_png
from rlx.splat.harmonics import BAND_0

FORMATS = ["ascii", "binary_little_endian", "binary_big_endian"]


def scene(count: int = 7, harmonics: int = 16) -> Splats:
    rng = np.random.default_rng(0)
    shapes = ((count, 3), (count, 4), (count, 3), (count,), (count, harmonics, 3))
    return Splats(*(rng.normal(size=s).astype(np.float32) for s in shapes))


@pytest.mark.selected("all")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("harmonics", [1, 16])
def test_splats_survive_a_file(tmp_path: Path, format: str, harmonics: int) -> None:
    saved = scene(harmonics=harmonics)
    save_ply(tmp_path / "scene.ply", saved, format=format)
    for a, b in zip(load_ply(tmp_path / "scene.ply"), saved, strict=True):
        np.testing.assert_array_equal(a, b)


def test_harmonics_are_stored_channel_by_channel(tmp_path: Path) -> None:
    saved = scene(1, 4)
    save_ply(tmp_path / "scene.ply", saved, format="ascii")
    head, _, row = (tmp_path / "scene.ply").read_text().partition("end_header\n")
    names = [line.split()[2] for line in head.splitlines() if line.startswith("property")]
    values = dict(zip(names, map(float, row.split()), strict=True))
    found = [values[f"f_rest_{n}"] for n in range(9)]
    np.testing.assert_allclose(found, saved.harmonics[0, 1:].T.ravel(), rtol=1e-6)


def test_other_elements_types_and_orders_of_properties(tmp_path: Path) -> None:
    """A camera before the vertices, normals, doubles, comments and lines that end with CR LF."""
    groups = {"scale": 3, "rot": 4, "f_dc": 3}
    names = ["y", "x", "z", "nx", "opacity", *(f"{group}_{n}" for group, count in groups.items() for n in range(count))]
    head = ["ply", "format binary_big_endian 1.0", "comment made here", "element camera 2", "property uchar id"]
    head += ["element vertex 1", *(f"property double {name}" for name in names), "element face 0", "end_header", ""]
    values = np.arange(len(names), dtype=">f8")
    (tmp_path / "scene.ply").write_bytes("\r\n".join(head).encode() + b"\1\2" + values.tobytes())
    loaded = load_ply(tmp_path / "scene.ply")
    assert loaded.means.tolist() == [[1.0, 0.0, 2.0]] and loaded.logits.tolist() == [4.0]
    assert loaded.quats.tolist() == [[8.0, 9.0, 10.0, 11.0]] and loaded.harmonics.shape == (1, 1, 3)


def _damaged(data: bytes) -> list[tuple[bytes, str]]:
    return [
        (b"", "not a PLY"),
        (data[:40], "not a PLY"),
        (data[:-1], "truncated"),
        (data.replace(b"element vertex 7", b"element vertex 99999999999"), "truncated"),
        (data.replace(b"element vertex 7", b"element vertex -1"), "header line"),
        (data.replace(b"element vertex", b"element face"), "vertex"),
        (data.replace(b"property float opacity", b"property float density"), "no opacity"),
        (data.replace(b"property float opacity", b"property list uchar int opacity"), "list"),
        (data.replace(b"property float opacity", b"property word opacity"), "unknown type"),
        (data.replace(b"property float opacity", b"property float x"), "twice"),
        (data.replace(b"property float f_rest_8", b"property float other"), "f_rest"),
        (data.replace(b"binary_little_endian", b"binary_other"), "header line"),
    ]


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "scene.ply"
    save_ply(path, scene())
    for data, words in _damaged(path.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=words):
            load_ply(path)
    save_ply(path, scene(), format="ascii")
    text = path.read_text()
    shorter = ((text[: text.rstrip().rfind("\n") + 1], "truncated"), (text.rstrip()[:-30], "not"), (text + "x", None))
    for changed, words in shorter:
        path.write_text(changed)
        if words is None:  # elements behind the vertices are not read
            load_ply(path)
            continue
        with pytest.raises(FileFormatError, match=words):
            load_ply(path)
    with pytest.raises(FileFormatError, match="format"):
        save_ply(path, scene(), format="text")
    with pytest.raises(ShapeError, match="quats"):
        save_ply(path, scene()._replace(quats=np.zeros((7, 3))))


# ------------------------------------------------------------- COLMAP
def colmap_text(folder: Path, camera: str = "PINHOLE 80 60 50 55 40 30") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cameras.txt").write_text(f"# cameras\n3 {camera}\n")
    second = "2 0.5 0.5 0.5 0.5 -1 0 2 3 a picture.jpg\n\n"
    (folder / "images.txt").write_text(f"# images\n1 2 0 0 0 1 2 3 3 b.jpg\n5.0 6.0 -1 7.0 8.0 9\n{second}")
    (folder / "points3D.txt").write_text("# points\n7 1 2 3 255 0 51 0.5 1 0 2 1\n8 -1 -2 -3 0 0 0 0.5\n")


def colmap_binary(folder: Path, model: int = 1, numbers: tuple[float, ...] = (50.0, 55.0, 40.0, 30.0)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    camera = struct.pack("<QiiQQ", 1, 3, model, 80, 60) + struct.pack(f"<{len(numbers)}d", *numbers)
    (folder / "cameras.bin").write_bytes(camera)
    first = struct.pack("<i7di", 1, 2, 0, 0, 0, 1, 2, 3, 3) + b"b.jpg\0" + struct.pack("<Qddq", 1, 5.0, 6.0, -1)
    second = struct.pack("<i7di", 2, 0.5, 0.5, 0.5, 0.5, -1, 0, 2, 3) + b"a picture.jpg\0" + struct.pack("<Q", 0)
    (folder / "images.bin").write_bytes(struct.pack("<Q", 2) + first + second)
    points = struct.pack("<Q3d3BdQii", 7, 1, 2, 3, 255, 0, 51, 0.5, 1, 1, 0)
    points += struct.pack("<Q3d3BdQ", 8, -1, -2, -3, 0, 0, 0, 0.5, 0)
    (folder / "points3D.bin").write_bytes(struct.pack("<Q", 2) + points)


@pytest.mark.selected("all")
@pytest.mark.parametrize("write", [colmap_text, colmap_binary])
@pytest.mark.parametrize("inside", [".", "sparse/0"])
def test_reconstructions(tmp_path: Path, write: object, inside: str) -> None:
    assert callable(write)
    write(tmp_path / inside)
    found = load_colmap(tmp_path)
    first, second = found.images
    assert (first.name, second.name) == ("a picture.jpg", "b.jpg") and (second.width, second.height) == (80, 60)
    np.testing.assert_allclose(first.camera.rotation, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(second.camera.rotation, np.eye(3))
    assert second.camera.translation.tolist() == [1, 2, 3]
    assert [float(x) for x in second.camera[2:]] == [50, 55, 40, 30]
    assert found.points.tolist() == [[1, 2, 3], [-1, -2, -3]]
    np.testing.assert_allclose(found.colors, [[1, 0, 0.2], [0, 0, 0]], rtol=1e-6)


def test_cameras_that_are_not_pinholes(tmp_path: Path) -> None:
    colmap_text(tmp_path, "SIMPLE_RADIAL 80 60 50 40 30 0")
    assert float(load_colmap(tmp_path).images[0].camera.fy) == 50
    wrong = ["MIRROR 80 60 50", "PINHOLE 80 60 50 40 30", "PINHOLE 0 60 50 50 40 30", "PINHOLE 80 60 0 50 40 30"]
    for camera in (*wrong, "PINHOLE x 60 1 1 1 1"):
        colmap_text(tmp_path, camera)
        with pytest.raises(FileFormatError):
            load_colmap(tmp_path)
    colmap_binary(tmp_path, 11)
    with pytest.raises(FileFormatError, match="unknown model 11"):
        load_colmap(tmp_path)


# number -> name, parameters, and how many of these describe a pinhole; the others are distortions
DISTORTED = {
    2: ("SIMPLE_RADIAL", 4, 3), 3: ("RADIAL", 5, 3), 4: ("OPENCV", 8, 4), 5: ("OPENCV_FISHEYE", 8, 4),
    6: ("FULL_OPENCV", 12, 4), 7: ("FOV", 5, 4), 8: ("SIMPLE_RADIAL_FISHEYE", 4, 3), 9: ("RADIAL_FISHEYE", 5, 3),
    10: ("THIN_PRISM_FISHEYE", 12, 4),
}  # fmt: skip


@pytest.mark.selected("all")
@pytest.mark.parametrize("model", DISTORTED)
def test_distorted_cameras_are_refused(tmp_path: Path, model: int) -> None:
    """By name, in text and binary files; a model that only has a distortion is taken without it."""
    name, count, pinhole = DISTORTED[model]
    for last in (0.1, 0.0):
        numbers = (50.0, 50.0, 40.0, 30.0)[-pinhole:] + (0.0,) * (count - pinhole - 1) + (last,)
        colmap_text(tmp_path / "text", f"{name} 80 60 {' '.join(map(str, numbers))}")
        colmap_binary(tmp_path / "binary", model, numbers)
        for folder in ("text", "binary"):
            if last or "FISHEYE" in name or name == "FOV":
                with pytest.raises(UnsupportedError, match=f"(?s){name} .*image_undistorter"):
                    load_colmap(tmp_path / folder)
            else:
                assert float(load_colmap(tmp_path / folder).images[0].camera.cx) == 40


@pytest.mark.thorough
def test_every_shorter_file_is_truncated(tmp_path: Path) -> None:
    colmap_binary(tmp_path)
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        data = (tmp_path / name).read_bytes()
        for size in range(len(data)):
            (tmp_path / name).write_bytes(data[:size])
            with pytest.raises(FileFormatError):
                load_colmap(tmp_path)
        (tmp_path / name).write_bytes(struct.pack("<Q", 1 << 62) + data[8:])
        with pytest.raises(FileFormatError, match="truncated"):
            load_colmap(tmp_path)
        (tmp_path / name).write_bytes(data)
    with pytest.raises(FileFormatError, match="reconstruction"):
        load_colmap(tmp_path / "absent")


# ------------------------------------------------------------- points and pictures
def test_scenes_of_points() -> None:
    points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [50, 50, 50]])
    made = init_from_points(points, np.full((5, 3), 0.75), degree=2)
    np.testing.assert_allclose(np.exp(made.log_scales[0]), 2.0, rtol=1e-6)  # the mean of 1, 2 and 3
    np.testing.assert_allclose(0.5 + BAND_0 * made.harmonics[:, 0], 0.75, rtol=1e-6)
    assert not made.harmonics[:, 1:].any() and made.harmonics.shape == (5, 9, 3)
    assert np.all(np.isfinite(init_from_points(np.zeros((4, 3)), np.zeros((4, 3))).log_scales))
    with pytest.raises(ShapeError):
        init_from_points(points, np.zeros((4, 3)))
    with pytest.raises(OptionError):
        init_from_points(points * np.nan, points)
    with pytest.raises(OptionError, match="degree"):
        init_from_points(points, points, degree=4)


def test_pictures(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 9, 3)).astype(np.uint8)
    save_png(tmp_path / "picture.png", pixels / 255)
    data = io.BytesIO((tmp_path / "picture.png").read_bytes())
    assert data.read(8) == b"\x89PNG\r\n\x1a\n"
    chunks = {}
    while head := data.read(8):
        size, name = struct.unpack(">I4s", head)
        chunks[name] = data.read(size)
        assert struct.unpack(">I", data.read(4))[0] == zlib.crc32(name + chunks[name])
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (9, 5, 8, 2, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(5, 28)
    np.testing.assert_array_equal(rows[:, 1:].reshape(5, 9, 3), pixels)
    with pytest.raises(ShapeError):
        save_png(tmp_path / "picture.png", pixels[..., 0])
