"""Handwritten digits on a microcontroller: train, quantise, write firmware in C, and run it on a Cortex-M4 in QEMU.

A small convolutional network becomes an integer program with int8 activations and weights of 8 bits after training, and
with 4 bits and three values after more training with rounded weights (LSQ). Each is exported as a C project. If a cross
compiler and QEMU are installed, its firmware classifies the test images, with the same codes as the computer. Otherwise
the project is built for this computer. Printed are accuracies, bytes of flash and RAM, and instructions for an image.
"""

import sys
import tempfile

import numpy as np
from digits import initial_parameters, load
from quantised_digits import accuracy, logits, trained, with_learned_scales

import rlx
import rlx.cortexm
from rlx import quant

EPOCHS, MORE, RATE = 12, 12, 3e-3
LOSSES = {8: 0.5, 4: 1.0, 2: 3.0}  # the largest loss of accuracy, in points


def program_of(bits, parameters, images, labels):
    """The network as an integer program, trained further if weights have few bits."""
    if bits == 8:
        return quant.integer_program(logits, parameters, images[:256], name="digits")
    start, network = with_learned_scales(parameters, images, bits)
    learned = trained(start, images, labels, MORE, RATE / 3, network)
    return quant.integer_program(network, learned, images[:256], bits=bits, name="digits")


def run(program, images, cpu, folder):
    """Scores of the firmware and of the computer, which are equal, and the firmware's report."""
    firmware = rlx.cortexm.export(program, folder, cpu=cpu)
    codes = np.asarray(program.quantize(images))
    (found,), _ = firmware.call(codes[:, None])
    host = np.asarray(rlx.jit(program)(codes))
    assert np.array_equal(found[:, 0], host)
    return found[:, 0], host, firmware.report


def main(widths=(8, 4, 2)):
    """Train, export and run; -> the largest loss of accuracy as a fraction of its limit."""
    missing = rlx.cortexm.missing_tools(rlx.cortexm.PROCESSORS["cortex-m4"])
    cpu = "generic" if missing else "cortex-m4"
    if missing:
        print(f"{', '.join(missing)} not installed: the program runs on this computer")
    images, test_images, labels, test_labels = load()
    parameters = trained(initial_parameters(rlx.random.key(0)), images, labels, EPOCHS, RATE, logits)
    full = accuracy(rlx.jit(logits)(parameters, test_images), test_labels)
    print(f"float32: {full:.2f} %")
    worst = 0.0
    for bits in widths:
        with tempfile.TemporaryDirectory() as folder:
            program = program_of(bits, parameters, images, labels)
            device, host, report = run(program, test_images, cpu, folder)
        points = accuracy(device, test_labels)
        print(f"{bits} bits on {cpu}: {points:.2f} %, on the host {accuracy(host, test_labels):.2f} %", end=", ")
        print(f"{report['macs']} multiplications, arena {report['arena']} bytes", end="")
        if report["instructions"]:
            count = sum(report["instructions"].values())
            print(f", flash {report['flash']} bytes, RAM {report['ram']} bytes, stack {report['stack']} bytes", end="")
            print(f", {count} instructions, {count / report['macs']:.2f} for a multiplication", end="")
        print()
        worst = max(worst, (full - points) / LOSSES[bits])
    assert worst <= 1, worst
    return worst


if __name__ == "__main__":
    main(*[tuple(map(int, sys.argv[1:]))] if sys.argv[1:] else [])
