// A clock for simulators that are given the testbench alone.
module clock;
  logic clk = 0;
  testbench bench (.clk(clk));
  always #5 clk = ~clk;
endmodule
