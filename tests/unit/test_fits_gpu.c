/* SPDX-License-Identifier: Apache-2.0 */
/* Which models' kernels fit into the shared memory of which GPUs. */
#include <string.h>

#include "kernels/attention.h"
#include "kernels/norm.h"
#include "llama3_8b.h"
#include "tap.h"
#include "topology/job/fits.h"
#include "topology/job/gpu_types.h"

static bool fits(const struct plait_job_config *c, struct plait_gpu_use use,
                 struct plait_error *err)
{
    err->text[0] = '\0';
    return plait_fits_gpu(c, &use, err) == 0;
}

/* For each compute capability, what CUDA lets a block have. */
static const struct {
    int sm, room;
} gpus[] = {{80, 166912},  {86, 101376},  {89, 101376},  {90, 232448},
            {100, 232448}, {103, 232448}, {120, 101376}, {121, 101376}};
enum { NGPUS = sizeof(gpus) / sizeof(*gpus) };

/* Without cuDNN all heads are own kernels'. */
static void test_own(void)
{
    struct plait_job_config c;
    struct plait_error err;
    int wrong = 0;

    llama3_8b(&c);
    for (int i = 0; i < NGPUS; i++)
        for (int head = 1; head <= PLAIT_ATTENTION_HEAD_MOST + 8; head++) {
            bool known = head <= PLAIT_ATTENTION_HEAD_MOST;
            size_t forward = plait_attention_bytes(head, PLAIT_FORWARD_TILES,
                                                   PLAIT_FORWARD_SQUARES);
            size_t backward = plait_attention_bytes(head, PLAIT_BACKWARD_TILES,
                                                    PLAIT_BACKWARD_SQUARES);
            size_t room = (size_t)gpus[i].room;
            struct plait_gpu_use use = {gpus[i].sm, false, PLAIT_WORK_TRAIN};

            c.model.head_dim = head;
            wrong += fits(&c, use, &err) != (known && backward <= room);
            use.work = PLAIT_WORK_EVALUATE;
            wrong += fits(&c, use, &err) != (known && forward <= room);
        }
    ok(wrong == 0,
       "attention is refused where its kernels do not fit: %d are not", wrong);
}

/* A GPU that came after Plait has as much as CUDA then says. */
static void test_later(void)
{
    struct plait_job_config c;
    struct plait_error err;

    llama3_8b(&c);
    c.model.head_dim = 256;
    c.model.hidden = 1 << 20;
    ok(fits(&c, (struct plait_gpu_use){130, true, PLAIT_WORK_TRAIN}, &err),
       "a GPU whose memory is not known refuses nothing %s", err.text);
}

/* What is refused before the first step, and what is not. */
static void test_cudnn(void)
{
    struct plait_job_config c;
    struct plait_error err;

    llama3_8b(&c);
    c.model.head_dim = 256;
    ok(!fits(&c, (struct plait_gpu_use){89, true, PLAIT_WORK_TRAIN}, &err) &&
           strcmp(err.text,
                  "heads of 256: to train, Plait's own kernels compute "
                  "attention's backward (cuDNN has none for heads above 128 on "
                  "this GPU), which needs 140032 bytes of shared memory; GPUs "
                  "of compute "
                  "capability 8.9 have 101376, enough for heads of 180") == 0,
       "%s", err.text);
    ok(fits(&c, (struct plait_gpu_use){89, true, PLAIT_WORK_EVALUATE}, &err),
       "an evaluation has no backward %s", err.text);
    ok(!fits(&c, (struct plait_gpu_use){120, true, PLAIT_WORK_EXTEND}, &err) &&
           strstr(err.text, "forward (texts grow)") != NULL,
       "%s", err.text);
    ok(fits(&c, (struct plait_gpu_use){80, true, PLAIT_WORK_TRAIN}, &err) &&
           fits(&c, (struct plait_gpu_use){90, true, PLAIT_WORK_TRAIN}, &err),
       "A100 and H100 train it %s", err.text);
    c.train.deterministic = true;
    ok(!fits(&c, (struct plait_gpu_use){120, true, PLAIT_WORK_TRAIN}, &err) &&
           strstr(err.text, "(cuDNN has none") != NULL,
       "it fits without train.deterministic no more than with it: %s",
       err.text);
    c.train.deterministic = false;
    c.model.attention_softcap = 50;
    ok(!fits(&c, (struct plait_gpu_use){120, true, PLAIT_WORK_EVALUATE},
             &err) &&
           strstr(err.text, "(model.attention_softcap)") != NULL,
       "%s", err.text);
    c.model.head_dim = 128;
    ok(fits(&c, (struct plait_gpu_use){120, true, PLAIT_WORK_TRAIN}, &err),
       "heads of 128 fit everywhere %s", err.text);
    c.model.head_dim = 264;
    ok(!fits(&c, (struct plait_gpu_use){90, true, PLAIT_WORK_TRAIN}, &err) &&
           strstr(err.text, "heads of 256 at most") != NULL,
       "%s", err.text);
}

/* An evaluation sees whole sequences, whatever training masks. */
static void test_documents(void)
{
    struct plait_job_config c;
    struct plait_error err;

    llama3_8b(&c);
    c.model.head_dim = 256;
    c.data.mask_documents = true;
    ok(fits(&c, (struct plait_gpu_use){89, true, PLAIT_WORK_EVALUATE}, &err),
       "an evaluation has no documents %s", err.text);
    c.data.mask_documents = false;
    c.model.attention_dropout = 0.1;
    ok(fits(&c, (struct plait_gpu_use){89, true, PLAIT_WORK_EVALUATE}, &err) &&
           !fits(&c, (struct plait_gpu_use){120, true, PLAIT_WORK_TRAIN}, &err),
       "and no dropout, which training has: %s", err.text);
    c.train.precision = PLAIT_FP32;
    ok(!fits(&c, (struct plait_gpu_use){89, true, PLAIT_WORK_EVALUATE}, &err) &&
           strstr(err.text, "forward (fp32)") != NULL,
       "%s", err.text);
}

/* A LayerNorm's backward has two sums for each column, an RMSNorm's one. */
static bool norm_fits(size_t columns, bool rms)
{
    return plait_norm_sums_bytes(1, columns, rms) + PLAIT_NORM_BYTES_BESIDE <=
           101376;
}

static void test_norms(void)
{
    const struct plait_gpu_use ada = {89, true, PLAIT_WORK_TRAIN},
                               once = {89, true, PLAIT_WORK_EVALUATE};
    struct plait_job_config c;
    struct plait_error err;
    int wrong = 0;

    llama3_8b(&c);
    c.model.head_dim = 128;
    for (int family = 0; family < 2; family++)
        for (int hidden = 12600; hidden < 25300; hidden++) {
            c.model.family = family ? PLAIT_LLAMA : PLAIT_GPT2;
            c.model.hidden = hidden;
            wrong += fits(&c, ada, &err) != norm_fits((size_t)hidden, family);
        }
    ok(wrong == 0, "norms are refused where they do not fit: %d are not",
       wrong);
    ok(norm_fits(12640, false) && !norm_fits(12641, false) &&
           norm_fits(25280, true) && !norm_fits(25281, true),
       "LayerNorms of 12640 columns fit on Ada, RMSNorms of 25280");
    ok(!fits(&c, ada, &err) &&
           strstr(err.text, "model.hidden 25299: to train, ") != NULL &&
           fits(&c, once, &err),
       "an evaluation has no backward %s", err.text);
    c.model.family = PLAIT_RESNET;
    ok(fits(&c, ada, &err), "image models have neither %s", err.text);
}

/* The queries of all heads, which may be wider than the model. */
static void test_query_norm(void)
{
    const struct plait_gpu_use ada = {89, true, PLAIT_WORK_TRAIN};
    struct plait_job_config c;
    struct plait_error err;

    llama3_8b(&c);
    c.model.head_dim = 128;
    c.model.heads = c.model.kv_heads = 198;
    c.model.qk_norm = c.model.qk_norm_whole = true;
    c.parallel.layout.size[PLAIT_TP] = 1;
    ok(!fits(&c, ada, &err) &&
           strstr(err.text, "columns of queries, 25344") != NULL,
       "%s", err.text);
    c.parallel.layout.size[PLAIT_TP] = 2;
    ok(fits(&c, ada, &err), "two ranks sum a part each %s", err.text);
    c.parallel.layout.size[PLAIT_TP] = 1;
    c.model.qk_norm_whole = false;
    ok(fits(&c, ada, &err), "a norm of each head fits %s", err.text);
}

/* The latents, which may be wider than the model. */
static void test_latent_norms(void)
{
    const struct plait_gpu_use ada = {89, true, PLAIT_WORK_TRAIN};
    struct plait_job_config c;
    struct plait_error err;

    llama3_8b(&c);
    c.model.kv_heads = c.model.heads;
    c.model.mla_kv = 512;
    c.model.mla_nope = c.model.mla_value = 64;
    c.model.mla_rope = 64;
    ok(fits(&c, ada, &err), "narrow latents fit %s", err.text);
    c.model.mla_q = 25344;
    ok(!fits(&c, ada, &err) && strstr(err.text, "model.mla: columns of q") &&
           strstr(err.text, "25344: to train, the backward of their norm"),
       "%s", err.text);
    c.model.mla_kv = c.model.mla_q;
    c.model.mla_q = 0;
    ok(!fits(&c, ada, &err) && strstr(err.text, "25344: to train"), "%s",
       err.text);
}

/* The planner's types; those without Plait's kernels are not asked. */
static void test_types(void)
{
    static const char *const types[] = {"l40s",     "rtx-pro-6000", "a100-80g",
                                        "v100-32g", "mi300x",       "cpu"};
    struct plait_job_config c;
    struct plait_error err;
    int wrong = 0;

    llama3_8b(&c);
    c.model.head_dim = 192;
    for (int i = 0; i < 6; i++) {
        struct plait_gpu_type gpu;

        plait_gpu_type_find(types[i], &gpu, NULL);
        wrong += (plait_fits_trainer_on(&c, &gpu, &err) == 0) != (i > 1);
    }
    ok(wrong == 0, "heads of 192 are refused on two of six types: %d wrong",
       wrong);
    c.framework = PLAIT_FRAMEWORK_MEGATRON;
    for (int i = 0; i < 2; i++) {
        struct plait_gpu_type gpu;

        plait_gpu_type_find(types[i], &gpu, NULL);
        wrong += plait_fits_trainer_on(&c, &gpu, &err) < 0;
    }
    ok(wrong == 0, "Megatron has its own kernels");
}

int main(void)
{
    test_own();
    test_later();
    test_cudnn();
    test_documents();
    test_norms();
    test_query_norm();
    test_latent_norms();
    test_types();
    return done_testing();
}
