/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's plans for attention and for the convolutions of image models, without
 * a GPU: cuDNN plans for a GPU that is described to it. For attention it
 * compiles kernels and loads them into a driver: stub_driver.c, as a real one
 * takes only those of its own GPU.
 * PLAIT_TEST_LONG=1: all shapes for all GPUs, also in fp16, and the backward
 * that adds. */
#include "config.h"

#include <dlfcn.h>
#include <string.h>

#include "tap.h"

#ifdef HAVE_CUDNN
#include "kernels/cuda/cudnn.h"
#endif

#if defined(HAVE_CUDNN) && CUDNN_VERSION >= 91900

/* Convolutions of ResNets for images of digits, CIFAR and ImageNet. */
static const struct plait_conv convs[] = {
    {128, 8, 8, 1, 16, 3, 1, 1},     {128, 32, 32, 3, 16, 3, 1, 1},
    {128, 32, 32, 16, 16, 3, 1, 1},  {128, 32, 32, 16, 32, 3, 2, 1},
    {128, 32, 32, 16, 32, 1, 2, 0},  {128, 8, 8, 64, 64, 3, 1, 1},
    {32, 224, 224, 3, 64, 7, 2, 3},  {32, 56, 56, 64, 64, 3, 1, 1},
    {32, 56, 56, 128, 128, 3, 2, 1}, {32, 56, 56, 256, 512, 1, 2, 0},
    {32, 7, 7, 512, 512, 3, 1, 1},   {1, 5, 7, 1, 3, 3, 1, 0},
};
enum { NCONVS = sizeof(convs) / sizeof(*convs) };

static const struct gpu {
    const char *name;
    int version, sms, shared, clock;
    long long memory;
} gpus[] = {
    {"A100", 800, 108, 166912, 1410000, 80000000000},
    {"H100", 900, 132, 232448, 1980000, 80000000000},
    {"B200", 1000, 148, 232448, 1965000, 180000000000},
};

static desc describe(const struct gpu *gpu)
{
    desc d = NULL;
    char text[1024];

    snprintf(text, sizeof(text),
             "{\"deviceVer\": %d, \"driverVer\": 13000, \"version\": 1, "
             "\"deviceName\": \"%s\", \"multiProcessorCount\": %d, "
             "\"maxSharedMemoryPerBlockOptin\": %d, \"smClockRateKHz\": %d, "
             "\"totalGlobalMem\": %lld, \"cudaDeviceId\": 0, "
             "\"maxGridSize\": [2147483647, 65535, 65535], "
             "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
             "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
             "\"reservedSharedMemoryPerBlock\": 1024, "
             "\"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
             "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
             "\"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": "
             "1, \"memClockRateKHz\": 2619000, \"l2CacheSize\": 50000000}",
             gpu->version, gpu->name, gpu->sms, gpu->shared, gpu->clock,
             gpu->memory);
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d) !=
        CUDNN_STATUS_SUCCESS)
        return NULL;
    if (cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)strlen(text) + 1,
                                 text) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS)
        return d;
    cudnnBackendDestroyDescriptor(d);
    return NULL;
}

static struct build start(struct plan *p, desc gpu)
{
    return (struct build){.p = p,
                          .next_id = NIDS,
                          .alignment = 16,
                          .notes = ALL_NOTES,
                          .most_workspace = INT64_MAX,
                          .device = {gpu, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                     CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP}};
}

static void forget(struct plan *p)
{
    while (p->nmade > 0)
        cudnnBackendDestroyDescriptor(p->made[--p->nmade]);
    free(p);
}

/* Returns the plan's workspace in bytes, or -1 if there is no plan. */
static int64_t plan_conv(desc gpu, const struct plait_conv *c,
                         enum cuda_conv_pass pass, bool tf32, int alignment)
{
    struct plan *p = calloc(1, sizeof(*p));
    struct build b = start(p, gpu);
    int64_t workspace = -1;

    p->key.subject = OF_CONVOLUTION;
    p->key.conv = (struct conv_shape){pass, *c, tf32, alignment};
    cudnn_state_conv(&b);
    cudnn_choose(&b);
    if (p->plan != NULL)
        workspace = p->workspace;
    forget(p);
    return workspace;
}

static void test_convs(const struct gpu *gpu)
{
    desc d = describe(gpu);
    int64_t most = 0, workspace;
    int missing = 0, i;

    if (!ok(d != NULL, "cuDNN knows what a GPU is: %s", gpu->name))
        return;
    for (i = 0; i < NCONVS * 12; i++) {
        workspace = plan_conv(d, &convs[i / 12], (enum cuda_conv_pass)(i % 3),
                              i / 3 % 2, i / 6 % 2 ? 16 : 4);
        if (workspace < 0)
            diag("convolution %d, pass %d, %s, aligned to %d", i / 12, i % 3,
                 i / 3 % 2 ? "TF32" : "fp32", i / 6 % 2 ? 16 : 4);
        missing += workspace < 0;
        most = workspace > most ? workspace : most;
    }
    ok(missing == 0,
       "%s: %d convolutions, forward and both gradients, fp32 and TF32, have "
       "an engine of one order and of that precision, workspace %lld MiB at "
       "most",
       gpu->name, NCONVS, (long long)most >> 20);
    cudnnBackendDestroyDescriptor(d);
}

static void test_refused(void)
{
    desc d = describe(&gpus[1]);
    struct plait_conv none = convs[1];

    none.C = 0;
    ok(plan_conv(d, &none, CUDA_CONV_FORWARD, false, 16) < 0,
       "a convolution of no channels has none");
    cudnnBackendDestroyDescriptor(d);
}

/* The lengths and heads of GPT-2 124M and 1.5B, of an 8B and a 70B Llama, and
 * unusual ones: few tokens, heads of other sizes, one key head for all, a
 * single sequence, lengths that are no power of two. */
static const struct shape shapes[] = {
    {.batch = 32, .len = 1024, .q_heads = 12, .kv_heads = 12, .head_dim = 64},
    {.batch = 8, .len = 1024, .q_heads = 25, .kv_heads = 25, .head_dim = 64},
    {.batch = 1, .len = 8192, .q_heads = 32, .kv_heads = 8, .head_dim = 128},
    {.batch = 1, .len = 4096, .q_heads = 64, .kv_heads = 8, .head_dim = 128},
    {.batch = 2, .len = 128, .q_heads = 4, .kv_heads = 2, .head_dim = 64},
    {.batch = 3, .len = 200, .q_heads = 4, .kv_heads = 4, .head_dim = 64},
    {.batch = 4, .len = 512, .q_heads = 8, .kv_heads = 8, .head_dim = 96},
    {.batch = 4, .len = 256, .q_heads = 8, .kv_heads = 1, .head_dim = 128},
    {.batch = 1, .len = 2048, .q_heads = 16, .kv_heads = 16, .head_dim = 80},
};
enum { NSHAPES = sizeof(shapes) / sizeof(*shapes) };

/* A piece of a sequence over one before it, in a ring of ranks. */
static const struct shape pieces[] = {
    {.batch = 1, .len = 2048, .q_heads = 32, .kv_heads = 8, .head_dim = 128},
    {.batch = 4, .len = 512, .q_heads = 12, .kv_heads = 12, .head_dim = 64},
    {.batch = 2, .len = 100, .q_heads = 4, .kv_heads = 1, .head_dim = 128},
};
enum { NPIECES = sizeof(pieces) / sizeof(*pieces) };

/* Layers with a sliding window: of Mistral 7B, of Gemma 3 (but for its heads),
 * and one that is no multiple of a tile. */
static const struct shape windows[] = {
    {.batch = 1,
     .len = 8192,
     .q_heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .window = 4096},
    {.batch = 2,
     .len = 2048,
     .q_heads = 8,
     .kv_heads = 4,
     .head_dim = 128,
     .window = 1024},
    {.batch = 2,
     .len = 512,
     .q_heads = 4,
     .kv_heads = 4,
     .head_dim = 64,
     .window = 100},
};
enum { NWINDOWS = sizeof(windows) / sizeof(*windows) };

/* Large heads, which not every GPU has plans for. */
static const struct shape large[] = {
    {.batch = 1, .len = 2048, .q_heads = 8, .kv_heads = 4, .head_dim = 192},
    {.batch = 1, .len = 2048, .q_heads = 8, .kv_heads = 4, .head_dim = 256},
};

/* Plans attention as a layer calls it, with q, k and v fused. way 0: forward;
 * 1: backward that adds; 2: backward. Returns why there is no plan, or NULL. */
static const char *plan_attention(desc gpu, const struct shape *s, int way,
                                  enum plait_dtype type, int64_t *workspace)
{
    static char why[200];
    struct plan *p = calloc(1, sizeof(*p));
    struct build b = start(p, gpu);
    struct shape *a = &p->key.attention;
    const char *result = NULL;

    *a = *s;
    a->backward = way > 0;
    a->overwrite = way == 2;
    a->type = type;
    a->q_stride = a->kv_stride =
        (size_t)(s->q_heads + 2 * s->kv_heads) * (size_t)s->head_dim;
    cudnn_state_attention(&b);
    cudnn_choose(&b);
    if (p->plan == NULL) {
        snprintf(why, sizeof(why), "%s: %s", b.what,
                 cudnnGetErrorString(b.status));
        result = why;
    }
    *workspace = p->workspace;
    forget(p);
    return result;
}

/* Plans every `step`th shape. */
static void test_way(const struct gpu *gpu, desc d, int way,
                     enum plait_dtype type, int step)
{
    static const char *const ways[] = {"forward", "backward that adds",
                                       "backward"};
    int64_t most = 0, workspace = 0;
    int missing = 0, n = 0;

    for (int i = 0; i < NSHAPES; i += step, n++) {
        const struct shape *s = &shapes[i];
        const char *why = plan_attention(d, s, way, type, &workspace);

        if (why != NULL)
            diag("%d x %d tokens, %d heads of %d, %d of keys: %s", s->batch,
                 s->len, s->q_heads, s->head_dim, s->kv_heads, why);
        missing += why != NULL;
        most = workspace > most ? workspace : most;
    }
    ok(missing == 0,
       "%s: attention's %s in %s is planned for %d shapes, workspace %lld KiB "
       "at most",
       gpu->name, ways[way], type == PLAIT_FP16_T ? "fp16" : "bf16", n,
       (long long)most >> 10);
}

static void test_pieces(const struct gpu *gpu, desc d)
{
    int missing = 0;

    for (int i = 0; i < 2 * NPIECES; i++) {
        struct shape s = pieces[i / 2];
        int64_t workspace;
        const char *why;

        s.unmasked = true;
        why = plan_attention(d, &s, i % 2, PLAIT_BF16_T, &workspace);
        if (why != NULL)
            diag("%d tokens, way %d: %s", s.len, i % 2, why);
        missing += why != NULL;
    }
    ok(missing == 0, "%s: attention that sees all keys, both ways", gpu->name);
}

/* How many operations attention is stated as, each way. */
static int operations(desc gpu, const struct shape *s)
{
    int n = 0;

    for (int way = 0; way < 2; way++) {
        struct plan *p = calloc(1, sizeof(*p));
        struct build b = start(p, gpu);

        p->key.attention = *s;
        p->key.attention.backward = way;
        p->key.attention.type = PLAIT_BF16_T;
        p->key.attention.q_stride = p->key.attention.kv_stride =
            (size_t)(s->q_heads + 2 * s->kv_heads) * (size_t)s->head_dim;
        cudnn_state_attention(&b);
        n += b.status == CUDNN_STATUS_SUCCESS ? b.nops : -OPERATIONS;
        forget(p);
    }
    return n;
}

static void test_windows(const struct gpu *gpu, desc d)
{
    struct shape whole = windows[0];
    int missing = 0;
    int64_t most = 0;

    for (int i = 0; i < 2 * NWINDOWS; i++) {
        const struct shape *s = &windows[i / 2];
        int64_t workspace = 0;
        const char *why =
            plan_attention(d, s, i % 2 * 2, PLAIT_BF16_T, &workspace);

        if (why != NULL)
            diag("%d tokens, window %d, way %d: %s", s->len, s->window, i % 2,
                 why);
        missing += why != NULL;
        most = workspace > most ? workspace : most;
    }
    ok(missing == 0,
       "%s: attention in windows, both ways, workspace %lld KiB at most",
       gpu->name, (long long)most >> 10);
    whole.window = 0;
    ok(operations(d, &windows[0]) == operations(d, &whole) + 2 * 5,
       "... whose band is five operations more");
}

static void test_large(const struct gpu *gpu, desc d)
{
    int planned[2] = {0, 0};
    int64_t most = 0;

    for (int i = 0; i < 4; i++) {
        int64_t workspace;
        const char *why =
            plan_attention(d, &large[i / 2], i % 2, PLAIT_BF16_T, &workspace);

        if (why != NULL)
            diag("heads of %d, way %d: %s", large[i / 2].head_dim, i % 2, why);
        planned[i % 2] += why == NULL;
        most = why == NULL && workspace > most ? workspace : most;
    }
    ok(planned[0] == 2 && (planned[1] == 2 || gpu->version != 900),
       "%s: heads of 192 and 256: forward, and %s, workspace %lld KiB",
       gpu->name, planned[1] ? "backward" : "no backward",
       (long long)most >> 10);
}

/* A plan takes half a second: only one GPU gets all shapes, and none in the
 * quick tier. */
static void test_attention(const struct gpu *gpu)
{
    const char *tier = getenv("PLAIT_TEST_TIER");
    bool all = getenv("PLAIT_TEST_LONG") != NULL;
    bool quick = tier != NULL && strcmp(tier, "quick") == 0;
    int step = all || (gpu->version == 900 && !quick) ? 1 : 3;
    desc d = describe(gpu);

    for (int way = 0; way < 3; way++) {
        if (all || way != 1)
            test_way(gpu, d, way, PLAIT_BF16_T, step);
        if (all)
            test_way(gpu, d, way, PLAIT_FP16_T, step);
    }
    test_pieces(gpu, d);
    test_windows(gpu, d);
    test_large(gpu, d);
    cudnnBackendDestroyDescriptor(d);
}

static void test_versions(void)
{
    const struct shape forward = shapes[0], odd = shapes[5];
    struct shape backward = forward, odd_backward = odd;

    backward.backward = odd_backward.backward = true;
    ok(cudnn_refused(&forward, 91000) && cudnn_refused(&backward, 91001) &&
           !cudnn_refused(&forward, 91002) && !cudnn_refused(&forward, 90900),
       "9.10.0 and 9.10.1 are refused: %s", cudnn_refused(&forward, 91000));
    ok(cudnn_refused(&backward, 90501) && !cudnn_refused(&forward, 90501) &&
           cudnn_refused(&odd_backward, 91500) &&
           !cudnn_refused(&odd_backward, 91600),
       "and backwards of those that have none for the shape");
}

/* The error of a machine without cuDNN. */
static void test_missing(void)
{
    char why[200] = "";

    ok(cudnn_load("libcudnn.so.0", why, sizeof(why)) < 0 &&
           strstr(why, "libcudnn.so.0") != NULL,
       "a library that is missing is named: %s", why);
    ok(cudnn_load("libc.so.6", why, sizeof(why)) < 0 &&
           strcmp(why, "libc.so.6 has no cudnnGetVersion") == 0,
       "and one that is another: %s", why);
}

int main(void)
{
    test_missing();
    test_versions();
    /* Under the name libcuda.so.1, by which cuDNN finds it loaded. */
    if (!ok(dlopen(STUB_DRIVER, RTLD_NOW) != NULL, "a driver is there"))
        diag("%s", dlerror());
    if (cudnn_missing() != NULL || cudnnGetVersion() < 91900) {
        skip("no cuDNN that plans for a GPU that is not there");
        return done_testing();
    }
    diag("cuDNN %zu", cudnnGetVersion());
    for (size_t i = 0; i < sizeof(gpus) / sizeof(*gpus); i++) {
        test_convs(&gpus[i]);
        test_attention(&gpus[i]);
    }
    test_refused();
    return done_testing();
}

#else

int main(void)
{
    return skip_all("configured without cuDNN 9.19 or later");
}

#endif
