/* What the program asks of its host: files, a line of text, and an end. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

int32_t board_open(const char *name, int writing); /* a handle, or less than 0 */
int32_t board_read(int32_t handle, void *to, uint32_t bytes); /* how many bytes were read */
void board_write(int32_t handle, const void *from, uint32_t bytes);
void board_close(int32_t handle);
void board_print(const char *text);
void board_exit(int failed);
void board_paint_stack(void);
int32_t board_stack_bytes(void); /* of the deepest call since the stack was painted */

#endif
