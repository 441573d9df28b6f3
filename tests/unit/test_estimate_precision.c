/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate_rows.h"
#include "tap.h"

static void test_tf32(void)
{
    struct plait_estimate full, fast, half;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    c.train.precision = PLAIT_FP32;
    plait_estimate(&c, &l, &gpu, &full, NULL);
    c.train.precision = PLAIT_TF32;
    plait_estimate(&c, &l, &gpu, &fast, NULL);
    c.train.precision = PLAIT_BF16;
    plait_estimate(&c, &l, &gpu, &half, NULL);
    ok(fast.memory.total == full.memory.total, "TF32 takes the memory of fp32");
    ok(half.step_s < fast.step_s && fast.step_s < full.step_s,
       "its step lies between bf16's and fp32's: %.3g < %.3g < %.3g",
       half.step_s, fast.step_s, full.step_s);
}

static void precise(const char *type, enum plait_precision precision,
                    struct plait_estimate *e)
{
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find(type, &gpu, NULL);
    make(&rows[2], &c, &l);
    c.train.precision = precision;
    plait_estimate(&c, &l, &gpu, e, NULL);
}

/* A GPT's layer has 12 h^2 weights. */
static void test_fp8(void)
{
    double h = rows[2].hidden;
    double tp = rows[2].tp, tokens = 16 * 2048., passes, bytes;
    struct plait_estimate half, fast;
    struct plait_gpu_type gpu;

    precise("h100", PLAIT_BF16, &half);
    precise("h100", PLAIT_FP8, &fast);
    plait_gpu_type_find("h100", &gpu, NULL);
    ok(near(fast.matmul_s / half.matmul_s,
            989 * gpu.matmul / (1979 * gpu.matmul8), 1e-9) &&
           fast.attention_s == half.attention_s,
       "fp8 has its rate in the linears alone: %.3g s of products, not %.3g",
       fast.matmul_s, half.matmul_s);
    ok(fast.head_s == half.head_s && fast.step_s < half.step_s &&
           near(fast.mfu * fast.step_s, half.mfu * half.step_s, 1e-9),
       "the head has not; MFU is of the same peak");
    /* Of the linears' operands, 4 h are whole on each tp rank, and 3 h + h + 4
     * h + 4 h split. */
    passes = 4. * rows[2].layers * rows[2].global / 32 / 16;
    bytes = 6. / 3 * tokens * (4 * h + 12 * h / tp);
    ok(near((fast.elementwise_s - half.elementwise_s) * 3350e9 * gpu.stream,
            passes * bytes, 1e-9),
       "each operand is read and written");
    bytes = 6 * 12 * h * h / tp * rows[2].layers / rows[2].pp;
    ok(near((fast.optimizer_s - half.optimizer_s) * 3350e9 * gpu.stream, bytes,
            1e-9),
       "weights once a step, in two orders");
    precise("a100-80g", PLAIT_BF16, &half);
    precise("a100-80g", PLAIT_FP8, &fast);
    ok(fast.matmul_s == half.matmul_s && fast.step_s > half.step_s,
       "a GPU without fp8 wins nothing");
}

/* The linears of a GPT-2 layer have 12 h^2 weights. */
static void test_fp8_weights(void)
{
    struct plait_estimate whole, half, parts[2];
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    double codes;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    c.model.family = PLAIT_GPT2;
    c.model.kv_heads = c.model.heads;
    c.model.ffn = 4 * c.model.hidden;
    codes = 2.0 * 12 * c.model.hidden * c.model.hidden * c.model.layers;
    for (int zero = 0; zero < 4; zero += 3) {
        c.parallel.zero = zero;
        c.train.precision = PLAIT_BF16;
        plait_estimate(&c, &l, &gpu, zero ? &parts[0] : &half, NULL);
        c.train.precision = PLAIT_FP8;
        plait_estimate(&c, &l, &gpu, zero ? &parts[1] : &whole, NULL);
    }
    ok(near(whole.memory.weights - half.memory.weights, codes, 1e-9),
       "fp8 keeps two bytes a weight of the layers' linears");
    ok(parts[0].memory.weights == parts[1].memory.weights,
       "but not with ZeRO 3");
    ok(near((parts[1].elementwise_s - parts[0].elementwise_s -
             (whole.elementwise_s - half.elementwise_s)) *
                3350e9 * gpu.stream,
            5 * codes * 4 / 3 * rows[0].global / 32 / 16, 1e-6) &&
           parts[1].optimizer_s == parts[0].optimizer_s,
       "which rounds weights for each product");
}

int main(void)
{
    test_tf32();
    test_fp8();
    test_fp8_weights();
    return done_testing();
}
