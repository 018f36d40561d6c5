// Written by rlx (rlx.export_wasm).

export interface Leaf {
  name: string;
  meaning: string;
  dtype: string;
  shape: number[];
  array: string;
  length: number;
  bytes: number;
  argument: boolean;
  written: boolean;
}

export interface Arrays {
ARRAYS
}

export interface Arguments {
ARGUMENTS
}

export interface Results {
RESULTS
}

export interface Loaded {
  /** The memory of arguments and results. */
  arrays: Arrays;
  /** Copies values to arguments, runs the function, and returns the arrays that it wrote. */
  call(values: Partial<Arguments>): Results;
  /** Runs the function on `arrays`. */
  run(): void;
}

export const leaves: Leaf[];
export function load(source?: URL | string | Response | BufferSource | WebAssembly.Module): Promise<Loaded>;
