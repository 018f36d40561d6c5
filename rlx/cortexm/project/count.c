/* A plugin of QEMU (interface version 1): how often the instruction at each address of a range ran.
   Arguments: lo=HEX, hi=HEX, to=FILE. Each line of the file is an address and a count. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translated_t)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*ended_t)(qemu_plugin_id_t, void *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_t);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, ended_t, void *);

int qemu_plugin_version = 1;
static uint64_t lo, hi, *counts;
static char to[4096];

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    for (size_t n = 0; n < qemu_plugin_tb_n_insns(block); ++n) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, n);
        const uint64_t at = qemu_plugin_insn_vaddr(insn);
        if (at >= lo && at < hi) qemu_plugin_register_vcpu_insn_exec_inline(insn, 0, &counts[(at - lo) / 2], 1);
    }
}

static void ended(qemu_plugin_id_t id, void *unused) {
    FILE *file = fopen(to, "w");
    (void)id;
    (void)unused;
    if (!file) return;
    for (uint64_t n = 0; n < (hi - lo) / 2; ++n)
        if (counts[n]) fprintf(file, "%" PRIx64 " %" PRIu64 "\n", lo + 2 * n, counts[n]);
    fclose(file);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    (void)info;
    for (int n = 0; n < argc; ++n) {
        if (!strncmp(argv[n], "lo=", 3)) lo = strtoull(argv[n] + 3, NULL, 16);
        if (!strncmp(argv[n], "hi=", 3)) hi = strtoull(argv[n] + 3, NULL, 16);
        if (!strncmp(argv[n], "to=", 3)) snprintf(to, sizeof to, "%s", argv[n] + 3);
    }
    counts = calloc((hi - lo) / 2 + 1, sizeof *counts);
    if (!counts) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
