/* Vectors, the reset handler, and calls of the host by semihosting. */
#include "board.h"

extern uint32_t link_data_load, link_data_start, link_data_end, link_bss_start, link_bss_end, link_stack_top;
int main(void);
void board_reset(void);
void board_fault(void);

enum { PAINTED = 16384, PAINT = 0xA5 };

__attribute__((section(".vectors"), used)) static void (*const board_vectors[16])(void) = {
    (void (*)(void))&link_stack_top, board_reset, board_fault, board_fault, board_fault, board_fault, board_fault, 0, 0, 0,
    0, board_fault, board_fault, 0, board_fault, board_fault,
};

static int32_t board_host(int32_t operation, const void *block) {
    register int32_t first __asm__("r0") = operation;
    register const void *second __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(first) : "r"(second) : "memory", "cc");
    return first;
}

static uint32_t board_length(const char *text) {
    uint32_t length = 0;
    while (text[length]) ++length;
    return length;
}

int32_t board_open(const char *name, int writing) {
    const uint32_t block[3] = {(uint32_t)name, writing ? 5 : 1, board_length(name)};
    return board_host(0x01, block);
}

int32_t board_read(int32_t handle, void *to, uint32_t bytes) {
    const uint32_t block[3] = {(uint32_t)handle, (uint32_t)to, bytes};
    return (int32_t)bytes - board_host(0x06, block);
}

void board_write(int32_t handle, const void *from, uint32_t bytes) {
    const uint32_t block[3] = {(uint32_t)handle, (uint32_t)from, bytes};
    board_host(0x05, block);
}

void board_close(int32_t handle) { board_host(0x02, &handle); }

void board_print(const char *text) { board_host(0x04, text); }

void board_exit(int failed) {
    board_host(0x18, (const void *)(failed ? 0x20023 : 0x20026));
    for (;;) {
    }
}

void board_fault(void) {
    board_print("The processor met a fault.\n");
    board_exit(1);
}

static uint8_t *board_stack(void) {
    uint8_t *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    return here;
}

static uint8_t *board_lowest(void) {
    uint8_t *low = (uint8_t *)&link_bss_end;
    return board_stack() - low > PAINTED ? board_stack() - PAINTED : low;
}

static uint8_t *board_painted;

__attribute__((noinline)) void board_paint_stack(void) {
    board_painted = board_lowest();
    for (volatile uint8_t *at = board_painted; at < board_stack() - 32; ++at) *at = PAINT;
}

int32_t board_stack_bytes(void) {
    const uint8_t *at = board_painted;
    while (at < (uint8_t *)&link_stack_top && *at == PAINT) ++at;
    return (int32_t)((uint8_t *)&link_stack_top - at);
}

void board_reset(void) {
    uint32_t *from = &link_data_load;
    for (uint32_t *to = &link_data_start; to < &link_data_end;) *to++ = *from++;
    for (volatile uint32_t *to = &link_bss_start; to < &link_bss_end;) *to++ = 0;
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: the floating-point unit */
    __asm__ volatile("dsb\n\tisb");
#endif
    board_exit(main());
}
