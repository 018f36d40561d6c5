// Runs every example of inputs.mem, compares the results with expected.mem, and prints the cycles of the last one.
`include "testbench.svh"

module testbench (
  input logic clk
);
  logic [7:0] inputs [0:`EXAMPLES * `INPUT_BYTES - 1];
  logic [7:0] expected [0:`EXAMPLES * `OUTPUT_BYTES - 1];
  initial $readmemh("inputs.mem", inputs);
  initial $readmemh("expected.mem", expected);

  localparam logic [2:0] RESET = 0, LOAD = 1, START = 2, WORK = 3, READ = 4, STOP = 5;
  logic [2:0] state = RESET;
  integer example = 0;
  integer position = 0;
  integer cycles = 0;
  integer differing = 0;
  logic [7:0] result;

`ifdef STREAM
  logic in_ready, out_valid, out_last, busy, done;
  // both streams stop in one of four cycles
  wire pause = cycles[1:0] == 2'd3;
  wire in_valid = state == LOAD && !pause;
  wire out_ready = state == READ && !pause;
  `DESIGN design_under_test (
    .clk(clk), .rst(state == RESET), .in_valid(in_valid), .in_ready(in_ready),
    .in_data(inputs[example * `INPUT_BYTES + position]), .out_valid(out_valid), .out_ready(out_ready),
    .out_last(out_last), .out_data(result), .busy(busy), .done(done)
  );
  wire loaded = in_ready && in_valid;
  wire read = out_valid && out_ready;
`else
  logic busy, done;
  logic waited = 0;
  `DESIGN design_under_test (
    .clk(clk), .rst(state == RESET), .start(state == START), .in_valid(state == LOAD),
    .in_address(position[`INPUT_BITS - 1:0]), .in_data(inputs[example * `INPUT_BYTES + position]),
    .out_address(position[`OUTPUT_BITS - 1:0]), .out_data(result), .busy(busy), .done(done)
  );
  always @(posedge clk) waited <= state == READ && !waited;
  wire loaded = 1;
  wire read = waited;
`endif

  always @(posedge clk) begin
    cycles <= cycles + 1;
    case (state)
      RESET: begin
        position <= position + 1;
        if (position == 3) begin
          state <= LOAD;
          position <= 0;
        end
      end
      LOAD: if (loaded) begin
        position <= position + 1;
        if (position == `INPUT_BYTES - 1) begin
          state <= START;
          position <= 0;
        end
      end
      START: begin
        cycles <= 1;
        state <= WORK;
      end
      WORK: if (done) begin
        if (example == `EXAMPLES - 1) $display("cycles %0d", cycles);
        state <= READ;
      end
      READ: if (read) begin
        if (result !== expected[example * `OUTPUT_BYTES + position]) begin
          differing <= differing + 1;
          if (differing < 8)
            $display("example %0d, byte %0d: %h instead of %h", example, position, result,
                     expected[example * `OUTPUT_BYTES + position]);
        end
        position <= position + 1;
`ifdef STREAM
        if (out_last != (position == `OUTPUT_BYTES - 1)) differing <= differing + 1;
`endif
        if (position == `OUTPUT_BYTES - 1) begin
          position <= 0;
          example <= example + 1;
          state <= example == `EXAMPLES - 1 ? STOP : LOAD;
        end
      end
      default: begin
        if (differing == 0) $display("PASS %0d examples", example);
        else $display("FAIL %0d bytes differ", differing);
        $finish;
      end
    endcase
    if (cycles > `CYCLE_LIMIT) begin
      $display("FAIL no result after %0d cycles", cycles);
      $finish;
    end
  end
endmodule
