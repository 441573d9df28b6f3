/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels an estimate takes to compute attention: cuDNN's or Plait's own,
 * and what that costs. */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "llama3_8b.h"
#include "tap.h"
#include "topology/job/model_size.h"
#include "topology/predict/estimate.h"

static struct plait_estimate on(const struct plait_job_config *c,
                                const char *type, int cp)
{
    struct plait_estimate e = {.attention_by = "none", .attention_why = ""};
    struct plait_error err = {""};
    struct plait_gpu_type gpu;
    struct plait_layout l;

    plait_layout_init(&l);
    l.size[PLAIT_DP] = 8 / cp;
    l.size[PLAIT_CP] = cp;
    plait_gpu_type_find(type, &gpu, NULL);
    if (plait_estimate(c, &l, &gpu, &e, &err) < 0)
        diag("%s", err.text);
    return e;
}

static bool is(const struct plait_estimate *e, const char *by, const char *why)
{
    return strcmp(e->attention_by, by) == 0 &&
           strcmp(e->attention_why, why) == 0;
}

static void test_choice(void)
{
    struct plait_job_config plain, c;
    struct plait_estimate e, own, mixed;

    llama3_8b(&plain);
    e = on(&plain, "h100", 1);
    ok(is(&e, "cuDNN", ""), "in bf16 it is cuDNN");
    c = plain;
    c.model.sliding_window = 1024;
    own = on(&c, "h100", 1);
    ok(is(&own, "cuDNN", "") && own.attention_s < e.attention_s / 3,
       "and with windows, which leave less");
    c = plain;
    c.model.attention_softcap = 50;
    own = on(&c, "h100", 1);
    ok(is(&own, "own kernels", "model.attention_softcap"),
       "capped scores have own kernels");
    e = on(&plain, "h100", 1);
    c = plain;
    c.model.dropout = 0.1;
    own = on(&c, "h100", 1);
    ok(is(&own, "cuDNN", "") && own.memory.activations > e.memory.activations,
       "dropout of the stream takes memory, not cuDNN");
    c = plain;
    c.model.attention_dropout = 0.1;
    own = on(&c, "h100", 1);
    ok(is(&own, "own kernels", "model.attention_dropout"),
       "attention with dropout has own kernels");
    c = plain;
    c.model.attention_softcap = 50;
    own = on(&c, "h100", 1);
    c.model.heads = 16;
    c.model.head_dim = 256;
    e = on(&c, "h100", 1);
    ok(e.attention_s > 2 * own.attention_s,
       "which are slow with heads beyond those on tensor cores");
    e = on(&plain, "h100", 1);
    c = plain;
    c.data.mask_documents = true;
    own = on(&c, "h100", 1);
    ok(is(&own, "own kernels", "documents") &&
           own.attention_s > 2 * e.attention_s &&
           own.attention_s < 4 * e.attention_s &&
           own.step_s > e.step_s + own.attention_s - e.attention_s - 1e-6,
       "documents have own kernels: %.1f instead of %.1f s", own.attention_s,
       e.attention_s);
    c = plain;
    c.train.deterministic = true;
    own = on(&c, "h100", 1);
    ok(is(&own, "own kernels", "train.deterministic, slower than cuDNN's") &&
           own.attention_s > 2 * e.attention_s,
       "and what must be the same in each bit");
    c = plain;
    c.optim.qk_clip = 100;
    mixed = on(&c, "h100", 1);
    ok(is(&mixed, "own kernels, backward cuDNN", "optim.qk_clip") &&
           mixed.attention_s >
               e.attention_s + 0.2 * (own.attention_s - e.attention_s) &&
           mixed.attention_s <
               e.attention_s + 0.4 * (own.attention_s - e.attention_s),
       "QK-clip has an own forward: %.1f s", mixed.attention_s);
    ok(mixed.memory.buffers == e.memory.buffers &&
           mixed.memory.optimizer ==
               e.memory.optimizer + 4.0 * c.model.heads * c.model.layers,
       "cuDNN's work space, and a number for each head");
    c = plain;
    c.model.head_dim = 100;
    own = on(&c, "h100", 1);
    ok(is(&own, "own kernels", "head_dim not a multiple of 8"),
       "and heads of 100");
    c.train.precision = PLAIT_FP32;
    own = on(&c, "h100", 1);
    ok(is(&own, "own kernels", "fp32"), "and fp32");
}

/* The heads that fits() of kernels/cuda/cudnn.c takes. */
static void test_heads(void)
{
    struct plait_job_config c;
    int wrong = 0;

    llama3_8b(&c);
    for (int head = 1; head <= 2 * PLAIT_CUDNN_HEAD_MOST; head++) {
        bool takes =
            head <= PLAIT_CUDNN_HEAD_MOST && head % PLAIT_CUDNN_HEAD_STEP == 0;

        c.model.head_dim = head;
        wrong += takes == (plait_model_own_attention(&c) != NULL);
    }
    ok(wrong == 0, "%d heads are cuDNN's here and not in its kernels, or back",
       wrong);
}

static void test_wide(void)
{
    static const char *const types[] = {"a100-80g", "b200", "gb200"};
    struct plait_job_config c;
    struct plait_estimate e, own;

    llama3_8b(&c);
    c.model.head_dim = 256;
    c.model.heads = 16;
    e = on(&c, "h200", 1);
    ok(is(&e, "cuDNN", ""), "heads of 256 on Hopper: cuDNN");
    for (int i = 0; i < 3; i++) {
        c.train.deterministic = false;
        e = on(&c, types[i], 1);
        c.train.deterministic = true;
        own = on(&c, types[i], 1);
        ok(is(&e, "cuDNN, backward own kernels", "head_dim above 128") &&
               e.attention_s < own.attention_s &&
               e.attention_s > own.attention_s / 2,
           "on %s cuDNN has no backward: %.1f s, %.1f by own kernels", types[i],
           e.attention_s, own.attention_s);
        c.train.deterministic = false;
        c.optim.qk_clip = 100;
        e = on(&c, types[i], 1);
        c.optim.qk_clip = 0;
        ok(is(&e, "own kernels", "optim.qk_clip, head_dim above 128"),
           "and with QK-clip no forward either");
    }
    c.train.deterministic = false;
    e = on(&c, "l40s", 1);
    ok(is(&e, "none", ""), "and on an L40S the own kernels do not fit");
}

/* A ring has 2 cp chunks of a sequence; cuDNN computes two of them together
 * where a window hides nothing of them. Counted in squares of a chunk: with
 * 2048 of 8192 tokens each and a window of two chunks, 6 are left, of which 1
 * lies where it hides a part; with chunks and a window of 1024, 3.5 of 7.5. */
static void test_chunks(void)
{
    static const struct {
        int cp, window;
        double share;
    } cases[] = {{2, 4096, 1.0 / 6}, {4, 1024, 3.5 / 7.5}, {4, 0, 0}};
    struct plait_job_config c;
    struct plait_estimate e;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_estimate one, ring, own;
        double share;

        llama3_8b(&c);
        c.model.sliding_window = cases[i].window;
        one = on(&c, "h100", 1);
        ring = on(&c, "h100", cases[i].cp);
        c.train.deterministic = true;
        own = on(&c, "h100", 1);
        share = (ring.attention_s - one.attention_s) /
                (own.attention_s - one.attention_s);
        ok(is(&one, "cuDNN", "") && fabs(share - cases[i].share) < 1e-3 &&
               is(&ring, share > 0 ? "cuDNN and own kernels" : "cuDNN",
                  share > 0 ? "windows between chunks" : ""),
           "cp %d, window %d: %.3f of the scores by own kernels", cases[i].cp,
           cases[i].window, share);
    }
    llama3_8b(&c);
    c.model.sliding_window = 1024;
    c.model.full_attention_every = 32;
    c.model.full_attention_first = 31;
    e = on(&c, "h100", 4);
    ok(is(&e, "cuDNN", ""), "a window that no layer has is none");
}

/* cuDNN's backward needs the gradient of q in fp32 (4 bytes a value), and where
 * heads share keys those of k and v for each head; in a ring, of one of two
 * pieces. */
static void test_memory(void)
{
    double values = 8192.0 * 32 * 128;
    struct plait_job_config c, own;

    llama3_8b(&c);
    for (int cp = 1; cp <= 2; cp++)
        for (int kv = 8; kv <= 32; kv += 24) {
            int pieces = cp > 1 ? 2 * cp : 1;
            double want = values / pieces * (kv < 32 ? 8 : 4), more;

            c.model.kv_heads = kv;
            own = c;
            own.train.deterministic = true;
            more = on(&c, "h100", cp).memory.buffers -
                   on(&own, "h100", cp).memory.buffers;
            ok(fabs(more - want) < 1, "cp %d, %d key heads: %.0f MB more", cp,
               kv, more / 1e6);
        }
}

static void test_others(void)
{
    struct plait_job_config c;
    struct plait_estimate e, documents;

    llama3_8b(&c);
    c.framework = PLAIT_FRAMEWORK_MEGATRON;
    e = on(&c, "h100", 1);
    c.data.mask_documents = true;
    documents = on(&c, "h100", 1);
    ok(is(&documents, "", "") && documents.attention_s == e.attention_s,
       "Megatron has its own attention");
    llama3_8b(&c);
    e = on(&c, "cpu", 1);
    ok(is(&e, "", ""), "a CPU has no cuDNN");
    for (int i = 0; i < 3; i++) {
        static const char *const without[] = {"v100-32g", "mi300x", "pvc"};

        e = on(&c, without[i], 1);
        ok(is(&e, "", ""), "nor has %s", without[i]);
    }
    e = on(&c, "l40s", 1);
    ok(is(&e, "cuDNN", ""), "an L40S has it");
}

int main(void)
{
    test_choice();
    test_heads();
    test_wide();
    test_chunks();
    test_memory();
    test_others();
    return done_testing();
}
