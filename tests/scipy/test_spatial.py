"""rlx.scipy.spatial.transform against SciPy: every description of a rotation, composition, interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.spatial.transform as model
from linalg_cases import batch_is_a_loop, close, matrix

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.scipy.spatial.transform import Rotation, Slerp
from rlx.testing import check_grads

QUATERNIONS = np.vstack(
    [matrix(6, 4), np.eye(4), -np.eye(4), [[1e-9, 0, 0, 1], [1e-4, 2e-4, 0, -1], [1, 1, 0, 0], [0.0, 1, 0, 1]]]
)
SEQUENCES = ("xyz", "zyx", "XYZ", "ZXY", "zxz", "XYX")


@pytest.fixture(params=[QUATERNIONS, QUATERNIONS[0]], ids=["many", "one"])
def quat(request: Any) -> np.ndarray:
    """Quaternions of any norm, with those of no rotation and of half turns."""
    return request.param


@pytest.mark.parametrize("form", ["matrix", "rotvec", "mrp", "quat"])
def test_forms_there_and_back(form: str, quat: np.ndarray) -> None:
    ours, theirs = Rotation.from_quat(quat), model.Rotation.from_quat(quat)
    described = getattr(theirs, f"as_{form}")()
    close(getattr(ours, f"as_{form}")(), described)
    close(rlx.jit(lambda q: getattr(Rotation.from_quat(q), f"as_{form}")())(quat), described)
    back = getattr(Rotation, f"from_{form}")(described)
    np.testing.assert_allclose(back.as_matrix(), theirs.as_matrix(), atol=1e-12)
    assert getattr(Rotation, f"from_{form}")(described.astype("f4")).quat.dtype == np.float32


def test_options_of_forms(quat: np.ndarray) -> None:
    ours, theirs = Rotation.from_quat(quat), model.Rotation.from_quat(quat)
    for options in ({"canonical": True}, {"scalar_first": True}, {"canonical": True, "scalar_first": True}):
        close(ours.as_quat(**options), theirs.as_quat(**options))
    close(ours.as_rotvec(degrees=True), theirs.as_rotvec(degrees=True))
    vector = theirs.as_rotvec(degrees=True)
    close(Rotation.from_rotvec(vector, degrees=True).as_matrix(), theirs.as_matrix())
    close(ours.magnitude(), theirs.magnitude())
    close(ours.inv().as_matrix(), theirs.inv().as_matrix())


@pytest.mark.parametrize("degrees", [False, True])
@pytest.mark.parametrize("seq", SEQUENCES)
def test_euler_angles(seq: str, degrees: bool) -> None:
    theirs = model.Rotation.from_quat(QUATERNIONS[:6])
    angles = theirs.as_euler(seq, degrees=degrees)
    close(Rotation.from_quat(QUATERNIONS[:6]).as_euler(seq, degrees=degrees), angles)
    close(Rotation.from_euler(seq, angles, degrees=degrees).as_matrix(), theirs.as_matrix())
    close(Rotation.from_euler(seq[:2], angles[0, :2], degrees).as_quat(),
          model.Rotation.from_euler(seq[:2], angles[0, :2], degrees).as_quat())  # fmt: skip


@pytest.mark.parametrize("seq", SEQUENCES)
@pytest.mark.filterwarnings("ignore:Gimbal lock")
def test_euler_angles_that_are_not_unique(seq: str) -> None:
    middle = (0.0, np.pi) if seq[0] == seq[2] else (np.pi / 2, -np.pi / 2)
    for angle in middle:
        theirs = model.Rotation.from_euler(seq, [0.3, angle, 0.5])
        ours = Rotation.from_quat(theirs.as_quat())
        found = ours.as_euler(seq)
        close(found, theirs.as_euler(seq))
        close(Rotation.from_euler(seq, found).as_matrix(), theirs.as_matrix())


def test_composition_and_application(quat: np.ndarray) -> None:
    other, vectors = matrix(*quat.shape[:-1], 4, seed=1), matrix(*quat.shape[:-1], 3, seed=2)
    ours, theirs = Rotation.from_quat(quat), model.Rotation.from_quat(quat)
    product = theirs * model.Rotation.from_quat(other)
    close((ours * Rotation.from_quat(other)).as_matrix(), product.as_matrix())
    for inverse in (False, True):
        close(ours.apply(vectors, inverse), theirs.apply(vectors, inverse=inverse))
        close(ours.apply(vectors[..., :3].reshape(-1, 3)[0], inverse),
              theirs.apply(vectors.reshape(-1, 3)[0], inverse=inverse))  # fmt: skip


def test_rotations_as_a_sequence() -> None:
    several = Rotation.from_quat(QUATERNIONS)
    assert len(several) == len(QUATERNIONS) and not several.single
    assert several[2].single and len(several[1:4]) == 3
    close(Rotation.concatenate([several[:2], several[4:]]).quat, np.delete(several.quat, [2, 3], 0))
    weights = np.arange(1.0, len(QUATERNIONS) + 1)
    for given in (None, weights):
        expected = model.Rotation.from_quat(QUATERNIONS).mean(given)
        close(several.mean(given).as_matrix(), expected.as_matrix())
    assert Rotation.identity().quat.tolist() == [0, 0, 0, 1]
    assert Rotation.identity(2, "f8").as_matrix().tolist() == [np.eye(3).tolist()] * 2
    drawn = Rotation.random(rlx.random.key(0), 400)
    np.testing.assert_allclose(np.linalg.norm(drawn.quat, axis=-1), 1, rtol=1e-6)
    assert np.abs(np.mean(drawn.as_matrix(), 0)).max() < 0.1
    assert Rotation.random(rlx.random.key(0)).single


def test_derivatives() -> None:
    quat, vector = QUATERNIONS[:2], matrix(3)
    check_grads(lambda q: Rotation.from_quat(q).as_euler("xyz"), (quat,), order=1)
    check_grads(lambda q, v: (Rotation.from_quat(q) * Rotation.from_rotvec(v)).as_rotvec(), (quat, vector), order=2)
    check_grads(lambda q: Rotation.from_matrix(Rotation.from_quat(q).as_matrix()).as_mrp(), (quat,), order=1)
    # at the identity too, where the length of the vector has no derivative
    np.testing.assert_allclose(rlx.jacrev(lambda v: Rotation.from_rotvec(v).as_rotvec())(np.zeros(3)), np.eye(3))
    np.testing.assert_allclose(rlx.jacfwd(lambda v: Rotation.from_rotvec(v).as_rotvec())(np.zeros(3)), np.eye(3))


def test_transforms() -> None:
    batch_is_a_loop(lambda q: Rotation.from_quat(q).as_rotvec(), (QUATERNIONS[0],), (0,))
    rotation = rlx.jit(lambda r: r.inv())(Rotation.from_quat(QUATERNIONS))
    assert isinstance(rotation, Rotation) and len(rlx.tree.leaves(rotation)) == 1
    close(rotation.as_matrix(), model.Rotation.from_quat(QUATERNIONS).inv().as_matrix())
    assert "Rotation(quat=" in repr(rotation)


@pytest.mark.parametrize("when", [0.0, 0.25, np.array([0.0, 0.5, 2.0, 3.0]), np.array([1.5])])
def test_interpolation(when: Any) -> None:
    times = np.array([0.0, 0.5, 2.0, 3.0])
    expected = model.Slerp(times, model.Rotation.from_quat(QUATERNIONS[:4]))(when)
    found = Slerp.init(times, Rotation.from_quat(QUATERNIONS[:4]))(when)
    assert found.quat.shape == (*np.shape(when), 4)
    close(found.as_matrix(), expected.as_matrix())
    run = rlx.jit(lambda q, t: Slerp.init(times, Rotation.from_quat(q))(t).as_matrix())
    close(run(QUATERNIONS[:4], when), expected.as_matrix())


def test_interpolation_goes_on_outside() -> None:
    turn = Slerp.init(
        np.array([0.0, 1.0, 2.0]), Rotation.from_rotvec(np.array([[0.0, 0, 0], [0.1, 0, 0], [0.3, 0, 0]]))
    )
    np.testing.assert_allclose(turn(np.array([-1.0, 3.0])).as_rotvec()[:, 0], [-0.1, 0.5], atol=1e-7)


def test_wrong_arguments() -> None:
    one, several = Rotation.from_quat(QUATERNIONS[0]), Rotation.from_quat(QUATERNIONS[:3])
    for seq in ("", "xyzx", "xXy", "abc", "xxy"):
        with pytest.raises(ValueError, match="not a sequence of axes"):
            Rotation.from_euler(seq, jnp.ones(max(len(seq), 1)))
    with pytest.raises(ValueError, match="as_euler takes three"):
        one.as_euler("xy")
    for call in (lambda: one[0], lambda: len(one)):
        with pytest.raises(errors.InputTypeError, match="single Rotation"):
            call()
    for make in (Rotation.from_quat, Rotation.from_matrix, Rotation.from_mrp, Rotation.from_rotvec, one.apply):
        with pytest.raises(errors.ShapeError, match="last axes have the lengths"):
            make(np.ones((2, 5)))
    with pytest.raises(errors.ShapeError, match="last axes"):
        Rotation.from_euler("xyz", 1.0)
    with pytest.raises(errors.ShapeError, match="weights"):
        several.mean(np.ones(2))
    with pytest.raises(errors.InputTypeError, match="Pass a Rotation"):
        Slerp.init(np.arange(3.0), QUATERNIONS[:3])
    with pytest.raises(errors.ShapeError, match="two or more"):
        Slerp.init(np.arange(1.0), one)
    with pytest.raises(errors.ShapeError, match="times of shape"):
        Slerp.init(np.arange(2.0), several)
    with pytest.raises(errors.ShapeError, match="number or a 1-d"):
        Slerp.init(np.arange(3.0), several)(np.ones((2, 2)))
