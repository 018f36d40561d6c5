"""The words of SystemVerilog that cannot be names."""

from __future__ import annotations

__all__ = ["KEYWORDS"]

KEYWORDS = frozenset(
    "always and assign automatic begin bit buf byte case cell class clocking config const cover default design "
    "disable do edge else end endcase endmodule enum event export extends final for force fork function generate "
    "genvar if import initial inout input int integer interface instance join library local logic longint module "
    "nand new nor not or output package parameter primitive priority program property pure rand real ref reg "
    "release repeat return sequence shortint signed small solve static strong string struct super supply0 supply1 "
    "table task this time timeprecision timeunit tri type typedef union unique unsigned use var void wait wand "
    "weak while wire with within wor xnor xor".split()
)
