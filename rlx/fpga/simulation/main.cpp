// A clock for the testbench as Verilator translates it.
#include "Vtestbench.h"
#include "verilated.h"

int main(int argc, char** argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    Vtestbench bench{&context};
    while (!context.gotFinish()) {
        bench.clk = !bench.clk;
        bench.eval();
        context.timeInc(1);
    }
    return 0;
}
