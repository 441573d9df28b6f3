/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions that kernels write as PTX. Each is recognized by its whole
 * text with its operands: any other text is an unknown instruction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "known.h"

/* A lane's part of an instruction of its warp. */
struct lane {
    void *const *out;
    const uint64_t *in;
    const void *pc;
};

static char *shared_at(uint64_t address)
{
    return emu_window + (unsigned)address;
}

/* -- ldmatrix
 * ------------------------------------------------------------------ */

/* Row l of the four matrices is at the address that lane l gives. */
static void act_ldmatrix(void *const *args, bool transposed)
{
    uint16_t row[EMU_WARP][8];

    for (int l = 0; l < EMU_WARP; l++) {
        const struct lane *lane = args[l];
        const char *p = shared_at(lane->in[0]);

        if ((uintptr_t)lane->in[0] % 16 != 0)
            emu_fault_at(lane->pc, "misaligned ldmatrix");
        emu_shadow_access(p, 16, EMU_READ, lane->pc);
        memcpy(row[l], p, 16);
    }
    for (int l = 0; l < EMU_WARP; l++) {
        const struct lane *lane = args[l];
        int g = l / 4, t = l % 4 * 2;

        for (int m = 0; m < 4; m++) {
            uint16_t low = transposed ? row[m * 8 + t][g] : row[m * 8 + g][t];
            uint16_t high =
                transposed ? row[m * 8 + t + 1][g] : row[m * 8 + g][t + 1];

            *(uint32_t *)lane->out[m] = low | (uint32_t)high << 16;
        }
    }
}

static void act_rows(void *const *args, unsigned mask)
{
    (void)mask;
    act_ldmatrix(args, false);
}

static void act_columns(void *const *args, unsigned mask)
{
    (void)mask;
    act_ldmatrix(args, true);
}

/* -- mma
 * ---------------------------------------------------------------------------
 */

static float fp16[1 << 16]; /* all values, widened */

static float widen_fp16(uint16_t x)
{
    if (fp16[0x3c00] == 0)
        for (int i = 0; i < 1 << 16; i++)
            fp16[i] = plait_f32_of_fp16((uint16_t)i);
    return fp16[x];
}

/* Gathers A [16,16] and B [16,8] from the registers of all lanes. */
static inline void gather(void *const *args, float (*widen)(uint16_t),
                          float a[16][16], float b[16][8])
{
    for (int l = 0; l < EMU_WARP; l++) {
        const struct lane *lane = args[l];
        int g = l / 4, t = l % 4 * 2;

        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++)
                a[g + r % 2 * 8][t + r / 2 * 8 + i] =
                    widen((uint16_t)(lane->in[r] >> 16 * i));
            for (int r = 0; r < 2; r++)
                b[t + r * 8 + i][g] =
                    widen((uint16_t)(lane->in[4 + r] >> 16 * i));
        }
    }
}

static inline void act_mma(void *const *args, float (*widen)(uint16_t))
{
    float a[16][16], b[16][8], c[16][8] = {{0}};

    gather(args, widen, a, b);
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                c[i][j] += a[i][k] * b[k][j];
    for (int l = 0; l < EMU_WARP; l++) {
        const struct lane *lane = args[l];

        for (int r = 0; r < 4; r++)
            *(float *)lane->out[r] += c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
    }
}

static void act_mma_bf16(void *const *args, unsigned mask)
{
    (void)mask;
    act_mma(args, plait_f32_of_bf16);
}

static void act_mma_fp16(void *const *args, unsigned mask)
{
    (void)mask;
    act_mma(args, widen_fp16);
}

/* Products of tf32: fp32 with 10 bits of mantissa. The other bits must be 0, as
 * a GPU ignores them and this product would not. */
static void act_mma_tf32(void *const *args, unsigned mask)
{
    float a[16][8], b[8][8];

    (void)mask;
    for (int l = 0; l < EMU_WARP; l++) {
        const struct lane *lane = args[l];
        int g = l / 4, t = l % 4;

        for (int r = 0; r < 6; r++)
            if (lane->in[r] & 0x1fff)
                emu_fault_at(lane->pc, "an operand of mma that is no tf32");
        for (int r = 0; r < 4; r++)
            memcpy(&a[g + r % 2 * 8][t + r / 2 * 4], &lane->in[r], 4);
        for (int r = 0; r < 2; r++)
            memcpy(&b[t + r * 4][g], &lane->in[4 + r], 4);
    }
    for (int l = 0; l < EMU_WARP; l++) {
        const struct lane *lane = args[l];

        for (int r = 0; r < 4; r++) {
            int i = l / 4 + r / 2 * 8, j = l % 4 * 2 + r % 2;
            float c = 0;

            for (int k = 0; k < 8; k++)
                c += a[i][k] * b[k][j];
            *(float *)lane->out[r] += c;
        }
    }
}

/* -- instructions of one lane ---------------------------------------------- */

/* ex2.approx.ftz: 2^x, with subnormal results flushed to 0. */
static void power_of_two(const struct lane *lane)
{
    float x, y;

    memcpy(&x, lane->in, sizeof(x));
    y = exp2f(x);
    *(float *)lane->out[0] = y < 0x1p-126f ? 0 : y;
}

/* cvt.rna: rounds to 10 bits of mantissa, ties away from 0. */
static void round_tf32(const struct lane *lane)
{
    uint32_t x = (uint32_t)lane->in[0];

    if ((x & 0x7fffffff) > 0x7f800000)
        x = 0x7fffe000; /* NaN */
    else if ((x & 0x7f800000) != 0x7f800000)
        x += 0x1000;
    *(uint32_t *)lane->out[0] = x & ~0x1fffu;
}

/* An asynchronous copy. A GPU may complete it at any time until it is waited
 * for; here it is done as late as possible. */
struct emu_copy {
    struct emu_copy *next;
    char *to;
    uint64_t from, bytes;
    int group;
    const void *pc;
};

static void begin_copy(const struct lane *lane)
{
    struct emu_copy *c = malloc(sizeof(*c)), **end = &emu_now->copies;
    uint64_t from = lane->in[1], bytes = lane->in[2];

    if (c == NULL)
        abort();
    if (lane->in[0] % 16 != 0 || (bytes > 0 && from % 16 != 0))
        emu_fault_at(lane->pc, "misaligned cp.async");
    *c = (struct emu_copy){NULL,  shared_at(lane->in[0]), from,
                           bytes, emu_now->committed,     lane->pc};
    emu_shadow_begin_copy(c->to, 16, c->pc);
    if (bytes > 0)
        emu_shadow_access((const void *)from, bytes, EMU_READ, c->pc);
    while (*end != NULL)
        end = &(*end)->next;
    *end = c;
}

/* Completes the copies of all groups below `group`. */
static void end_copies(int group)
{
    while (emu_now->copies != NULL && emu_now->copies->group < group) {
        struct emu_copy *c = emu_now->copies;

        emu_now->copies = c->next;
        emu_shadow_end_copy(c->to, 16, c->pc);
        memset(c->to, 0, 16);
        memcpy(c->to, (const void *)c->from, c->bytes);
        free(c);
    }
}

static void commit_copies(const struct lane *lane)
{
    (void)lane;
    emu_now->committed++;
}

static void wait_copies(const struct lane *lane)
{
    end_copies(emu_now->committed - (int)lane->in[0]);
}

/* There are no caches. */
static void prefetch(const struct lane *lane)
{
    (void)lane;
}

void emu_finish_copies(void)
{
    end_copies(emu_now->committed + 1);
}

/* -- by text
 * -----------------------------------------------------------------------------
 */

static const struct instruction {
    const char *text;
    void (*warp)(void *const *args, unsigned mask); /* for a whole warp, or */
    void (*lane)(const struct lane *lane);          /* for each lane */
} known[] = {
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];",
     act_rows, NULL},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
     "{%0, %1, %2, %3}, [%4];",
     act_columns, NULL},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
     act_mma_bf16, NULL},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
     act_mma_fp16, NULL},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
     act_mma_tf32, NULL},
    {"cvt.rna.tf32.f32 %0, %1;", NULL, round_tf32},
    {"ex2.approx.ftz.f32 %0, %1;", NULL, power_of_two},
    {"prefetch.global.L2 [%0];", NULL, prefetch},
    {"cp.async.cg.shared.global [%0], [%1], 16, %2;", NULL, begin_copy},
    {"cp.async.commit_group;", NULL, commit_copies},
    {"cp.async.wait_group %0;", NULL, wait_copies},
};

/* Texts are constants of the kernels, so most are found by their address. */
static const struct instruction *find_instruction(const char *text)
{
    static struct {
        const char *text;
        const struct instruction *is;
    } found[64];
    size_t at = (uintptr_t)text / 8 % (sizeof(found) / sizeof(found[0]));

    if (found[at].text == text)
        return found[at].is;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].text, text) == 0) {
            found[at].text = text;
            return found[at].is = &known[i];
        }
    return NULL;
}

void emu_ptx(const char *text, void *const *out, const uint64_t *in, int line)
{
    struct lane lane = {out, in, __builtin_return_address(0)};
    const struct instruction *is = find_instruction(text);

    if (is == NULL)
        emu_fault_at(lane.pc, "unknown instruction \"%s\"", text);
    else if (is->warp != NULL)
        emu_meet(0xffffffff, &lane, is->warp, line, text);
    else
        is->lane(&lane);
}
