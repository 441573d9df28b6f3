/* SPDX-License-Identifier: Apache-2.0 */
/* What --auto chooses where experts have published what they chose. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tap.h"
#include "topology/job/stage.h"
#include "topology/predict/auto.h"
#include "topology/predict/simulate.h"

enum { SETTINGS_MOST = 40, KEPT = 40 };

/* A choice may be slower than the best by simulation, and than the expert's
 * layout, by this share, below which --auto calls layouts equal. */
#define EQUAL PLAIT_CHOICE_EQUAL

static const char llama8[] =
    "model.family=llama model.layers=32 model.hidden=4096 model.heads=32 "
    "model.kv_heads=8 model.ffn=14336 model.vocab=128256";
static const char llama70[] =
    "model.family=llama model.layers=80 model.hidden=8192 model.heads=64 "
    "model.kv_heads=8 model.ffn=28672 model.vocab=128256";
static const char llama405[] =
    "model.family=llama model.layers=126 model.hidden=16384 model.heads=128 "
    "model.kv_heads=8 model.ffn=53248 model.vocab=128256";
static const char mixtral[] =
    "model.family=llama model.layers=32 model.hidden=4096 model.heads=32 "
    "model.kv_heads=8 model.ffn=14336 model.vocab=32000 model.experts=8 "
    "model.experts_top_k=2";
static const char deepseek[] =
    "model.family=llama model.layers=61 model.hidden=7168 model.heads=128 "
    "model.kv_heads=128 model.ffn=2048 model.vocab=129280 model.experts=256 "
    "model.experts_top_k=8 model.shared_experts=1 model.dense_layers=3 "
    "model.dense_ffn=18432 model.mla=[1536,512,128,64,128]";
static const char mpt7[] =
    "model.family=gpt2 model.layers=32 model.hidden=4096 model.heads=32 "
    "model.ffn=16384 model.vocab=50368";
static const char gpt1[] =
    "model.family=gpt2 model.layers=48 model.hidden=1600 model.heads=25 "
    "model.ffn=6400 model.vocab=50257";
static const char llama13[] =
    "model.family=llama model.layers=40 model.hidden=5120 model.heads=40 "
    "model.kv_heads=40 model.ffn=13824 model.vocab=32000";
static const char gpt175[] =
    "model.family=gpt2 model.layers=96 model.hidden=12288 model.heads=96 "
    "model.ffn=49152 model.vocab=51200";
static const char bloom[] =
    "model.family=gpt2 model.layers=70 model.hidden=14336 model.heads=112 "
    "model.ffn=57344 model.vocab=250880";

/* The expert's layout, and where it is from. */
static const struct situation {
    const char *name, *gpu;
    int gpus;
    enum plait_framework framework;
    const char *model, *job, *expert;
    double link; /* of links in the node, bytes/s; 0: the type's */
} situations[] = {
    /* Megatron-Bridge, docs/performance-summary */
    {"70B on 64 H100", "h100", 64, PLAIT_FRAMEWORK_MEGATRON, llama70,
     "model.seq_len=8192 train.global_batch=256 train.precision=fp8 "
     "parallel.grad_reduce=bf16",
     "parallel.tp=4 parallel.pp=8 parallel.schedule=interleaved "
     "parallel.virtual=5 parallel.sequence=true parallel.zero=1 "
     "train.micro_batch=1",
     0},
    {"405B on 1024 H100", "h100", 1024, PLAIT_FRAMEWORK_MEGATRON, llama405,
     "model.seq_len=8192 train.global_batch=1536 train.precision=fp8 "
     "parallel.grad_reduce=bf16",
     "parallel.tp=8 parallel.cp=2 parallel.pp=8 parallel.schedule=interleaved "
     "parallel.virtual=8 parallel.sequence=true parallel.zero=1 "
     "train.micro_batch=1",
     0},
    {"8x7B on 64 H100", "h100", 64, PLAIT_FRAMEWORK_MEGATRON, mixtral,
     "model.seq_len=4096 train.global_batch=256 train.precision=bf16",
     "parallel.ep=8 parallel.pp=4 parallel.schedule=interleaved "
     "parallel.virtual=8 parallel.zero=1 train.micro_batch=1",
     0},
    /* DeepSeek-V3 Technical Report (2024): 16-way pipeline, 64-way experts,
     * ZeRO 1; the H800's NVLink has 160 GB/s */
    {"DeepSeek-V3 on 2048 H800", "h100", 2048, PLAIT_FRAMEWORK_MEGATRON,
     deepseek,
     "model.seq_len=4096 train.global_batch=15360 train.precision=fp8 "
     "parallel.grad_reduce=bf16",
     "parallel.ep=64 parallel.pp=16 parallel.zero=1 "
     "parallel.recompute=selective train.micro_batch=1",
     160e9},
    {"DeepSeek-V3 on 256 GB200", "gb200", 256, PLAIT_FRAMEWORK_MEGATRON,
     deepseek,
     "model.seq_len=4096 train.global_batch=2048 train.precision=fp8 "
     "parallel.grad_reduce=bf16",
     "parallel.ep=64 parallel.pp=4 parallel.schedule=interleaved "
     "parallel.virtual=4 parallel.zero=1 parallel.recompute=selective "
     "train.micro_batch=1",
     0},
    /* mosaicml/llm-foundry, scripts/train/benchmarking */
    {"7B on 8 A100 of 40 GB", "a100-40g", 8, PLAIT_FRAMEWORK_LLM_FOUNDRY, mpt7,
     "model.seq_len=2048 train.global_batch=256 train.precision=bf16",
     "parallel.zero=3 parallel.recompute=full train.micro_batch=4", 0},
    {"1.5B on 4 L40S", "l40s", 4, PLAIT_FRAMEWORK_PLAIT, gpt1,
     "model.seq_len=1024 train.global_batch=512 train.precision=bf16",
     "parallel.zero=1 train.micro_batch=4", 0},
    {"13B on 16 MI250X", "mi250x", 16, PLAIT_FRAMEWORK_MEGATRON, llama13,
     "model.seq_len=4096 train.global_batch=512 train.precision=bf16",
     "parallel.tp=2 parallel.pp=4 parallel.sequence=true parallel.zero=1 "
     "train.micro_batch=1",
     0},
    {"8B at 128k on 32 H100", "h100", 32, PLAIT_FRAMEWORK_MEGATRON, llama8,
     "model.seq_len=131072 train.global_batch=32 train.precision=bf16",
     "parallel.tp=4 parallel.cp=8 parallel.sequence=true parallel.zero=1 "
     "train.micro_batch=1",
     0},
    /* karpathy/llm.c, scripts/run_gpt2_1558M.sh */
    {"1.5B on 8 H100", "h100", 8, PLAIT_FRAMEWORK_PLAIT, gpt1,
     "model.seq_len=1024 train.global_batch=1024 train.precision=bf16",
     "parallel.zero=1 train.micro_batch=16", 0},
    /* Narayanan et al., SC21 */
    {"175B on 1024 A100, 2021", "a100-80g", 1024, PLAIT_FRAMEWORK_MEGATRON_2021,
     gpt175, "model.seq_len=2048 train.global_batch=1536 train.precision=fp16",
     "parallel.tp=8 parallel.pp=16 parallel.recompute=full train.micro_batch=1",
     0},
    /* BLOOM: bigscience, train/tr11-176B-ml */
    {"176B on 384 A100, 2022", "a100-80g", 384, PLAIT_FRAMEWORK_MEGATRON_2021,
     bloom, "model.seq_len=2048 train.global_batch=2048 train.precision=bf16",
     "parallel.tp=4 parallel.pp=12 parallel.zero=1 parallel.recompute=full "
     "train.micro_batch=2",
     0},
};

/* Cuts a text of settings at its blanks, in place. */
static int split(char *text, const char **at, int n)
{
    char *rest;

    for (char *word = strtok_r(text, " ", &rest); word && n < SETTINGS_MOST;
         word = strtok_r(NULL, " ", &rest))
        at[n++] = word;
    return n;
}

static struct plait_job_config *make(const struct situation *s,
                                     const char *expert)
{
    struct plait_error err = {""};
    struct plait_job_config *c;
    const char *at[SETTINGS_MOST];
    char text[1024];
    int n;

    snprintf(text, sizeof(text), "%s %s %s", s->model, s->job, expert);
    n = split(text, at, 0);
    c = plait_job_config_parse(s->name, "", 0, at, n, &err);
    if (c)
        c->framework = s->framework;
    else
        diag("%s: %s", s->name, err.text);
    return c;
}

/* Seconds of a step, 0 where it cannot be said. */
static double simulated(const struct plait_job_config *c,
                        const struct plait_layout *l,
                        const struct plait_gpu_type *gpu,
                        struct plait_estimate *e)
{
    struct plait_stage_time *times = calloc(
        (size_t)l->size[PLAIT_PP] * (size_t)plait_model_chunks(&c->parallel),
        sizeof(*times));
    struct plait_simulation_request request;
    struct plait_simulation *s = NULL;
    struct plait_error err = {""};
    double step = 0;

    if (times && plait_estimate(c, l, gpu, e, &err) == 0 &&
        plait_simulation_request_set(&request, times, c, l, gpu, &err) == 0)
        s = plait_simulation_create(&request, &err);
    if (s)
        step = s->step;
    else
        diag("%s", err.text);
    plait_simulation_destroy(s);
    free(times);
    return step;
}

static double expert_step(const struct situation *s,
                          const struct plait_gpu_type *gpu,
                          struct plait_estimate *e)
{
    struct plait_job_config *c = make(s, s->expert);
    struct plait_layout l;
    double step = 0;

    if (c) {
        l = c->parallel.layout;
        l.size[PLAIT_DP] =
            s->gpus / (l.size[PLAIT_TP] * l.size[PLAIT_CP] * l.size[PLAIT_PP]);
        step = simulated(c, &l, gpu, e);
    }
    plait_job_config_destroy(c);
    return step;
}

/* The fastest by simulation of more than --auto simulates. */
static double best_step(const struct plait_job_config *c,
                        const struct plait_choices *many,
                        const struct plait_gpu_type *gpu)
{
    double best = 0;

    for (int i = 0; i < many->n; i++) {
        struct plait_job_config each = *c;
        const struct plait_choice *choice = &many->choice[i];
        struct plait_estimate e;
        double step;

        each.parallel = choice->parallel;
        each.parallel.layout = choice->layout;
        each.train.micro_batch = choice->micro_batch;
        step = simulated(&each, &choice->layout, gpu, &e);
        best = best > 0 && best < step ? best : step;
    }
    return best;
}

static void judge(const struct situation *s)
{
    struct plait_job_config *c = make(s, "");
    struct plait_choices *found = NULL;
    struct plait_choice *first;
    struct plait_gpu_type gpu;
    struct plait_layout any;
    struct plait_estimate expert;
    double published, best;

    plait_gpu_type_find(s->gpu, &gpu, NULL);
    if (s->link > 0)
        gpu.link_bw = s->link;
    plait_layout_init(&any);
    for (int i = 0; i < PLAIT_NAXES; i++)
        any.size[i] = PLAIT_AUTO;
    if (c)
        found = plait_auto_create(c, &any, s->gpus, &gpu, KEPT);
    if (!ok(found && found->n, "%s: there is a layout", s->name)) {
        plait_choices_destroy(found);
        plait_job_config_destroy(c);
        return;
    }
    first = &found->choice[0];
    published = expert_step(s, &gpu, &expert);
    best = best_step(c, found, &gpu);
    ok(first->estimate.memory.total <= plait_gpu_type_room(&gpu) &&
           first->estimate.memory.host <= gpu.host_memory,
       "%s: %.1f GB leave room in %.1f", s->name,
       first->estimate.memory.total / 1e9, gpu.memory / 1e9);
    ok(first->estimate.step_s <= best * (1 + EQUAL),
       "%s: %.3f s a step, the best of %d by simulation %.3f", s->name,
       first->estimate.step_s, KEPT, best);
    ok(published > 0 && first->estimate.step_s <= published * (1 + EQUAL),
       "%s: the expert's layout takes %.3f s and %.1f GB; tp %d cp %d ep %d pp "
       "%d v %d zero %d b %d recompute %d offload %d",
       s->name, published, expert.memory.total / 1e9,
       first->layout.size[PLAIT_TP], first->layout.size[PLAIT_CP],
       first->layout.size[PLAIT_EP], first->layout.size[PLAIT_PP],
       first->parallel.virtual_stages, first->parallel.zero, first->micro_batch,
       first->parallel.recompute, first->parallel.offload);
    plait_choices_destroy(found);
    plait_job_config_destroy(c);
}

/* A step of thousands of micro-batches is played in part; it must take what a
 * whole simulation says, and --auto no more time than for few. */
static void judge_large(int batch, bool whole)
{
    char job[128];
    struct situation s = {"405B, large batch",
                          "h100",
                          1024,
                          PLAIT_FRAMEWORK_MEGATRON,
                          llama70,
                          job,
                          "",
                          0};
    struct plait_choices *found = NULL;
    clock_t start = clock();
    struct plait_gpu_type gpu;
    struct plait_layout any;
    struct plait_job_config *c;
    double seconds, off = 0;

    snprintf(job, sizeof(job), "model.seq_len=8192 train.global_batch=%d",
             batch);
    c = make(&s, "");
    plait_gpu_type_find(s.gpu, &gpu, NULL);
    plait_layout_init(&any);
    for (int i = 0; i < PLAIT_NAXES; i++)
        any.size[i] = PLAIT_AUTO;
    if (c)
        found = plait_auto_create(c, &any, s.gpus, &gpu, 10);
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    ok(found && found->n == 10 && seconds < 10,
       "a batch of %d takes %.2f s of a processor", batch, seconds);
    for (int i = 0; whole && found && i < found->n; i++) {
        struct plait_choices one = {.n = 1, .choice = &found->choice[i]};

        off = fmax(off, fabs(best_step(c, &one, &gpu) /
                                 found->choice[i].estimate.step_s -
                             1));
    }
    if (whole)
        ok(off < 0.01, "its steps are off whole simulations by %.2f %%",
           100 * off);
    plait_choices_destroy(found);
    plait_job_config_destroy(c);
}

/* The fewest GPUs that --auto names are enough for --auto. */
static void judge_fewest(void)
{
    struct situation s = {"8B, too few", "h100", 8,  PLAIT_FRAMEWORK_MEGATRON,
                          llama8,        "",     "", 0};
    struct plait_job_config *c = make(&s, "");
    struct plait_gpu_type gpu;
    struct plait_layout any;
    int wrong = 0, helped = 0;

    plait_gpu_type_find(s.gpu, &gpu, NULL);
    plait_layout_init(&any);
    for (int i = 0; i < PLAIT_NAXES; i++)
        any.size[i] = PLAIT_AUTO;
    for (gpu.memory = 16e9; c && gpu.memory < 40e9; gpu.memory += 0.5e9) {
        int free = plait_auto_fewest_free(c, &gpu);
        struct plait_choices *found;

        helped += free > plait_auto_fewest(c, &gpu);
        found = free ? plait_auto_create(c, &any, free, &gpu, 1) : NULL;
        wrong += free && !(found && found->n);
        plait_choices_destroy(found);
    }
    ok(wrong == 0 && helped > 0,
       "of %d sizes of memory where the headroom "
       "takes more GPUs, %d are said too few",
       helped, wrong);
    plait_job_config_destroy(c);
}

int main(void)
{
    judge_fewest();
    judge_large(8192, true);
    judge_large(1 << 20, false);
    for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
        judge(&situations[i]);
    return done_testing();
}
