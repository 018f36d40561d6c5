/* The same calls on a computer, with the C library. */
#include <stdio.h>
#include <stdlib.h>

#include "board.h"

static FILE *board_files[8];

int32_t board_open(const char *name, int writing) {
    for (int32_t handle = 0; handle < 8; ++handle)
        if (!board_files[handle]) {
            board_files[handle] = fopen(name, writing ? "wb" : "rb");
            return board_files[handle] ? handle : -1;
        }
    return -1;
}

int32_t board_read(int32_t handle, void *to, uint32_t bytes) {
    return (int32_t)fread(to, 1, bytes, board_files[handle]);
}

void board_write(int32_t handle, const void *from, uint32_t bytes) { fwrite(from, 1, bytes, board_files[handle]); }

void board_close(int32_t handle) {
    fclose(board_files[handle]);
    board_files[handle] = NULL;
}

void board_print(const char *text) { fputs(text, stdout); }

void board_exit(int failed) { exit(failed); }

void board_paint_stack(void) {}

int32_t board_stack_bytes(void) { return 0; }
