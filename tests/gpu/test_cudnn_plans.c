/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's plans for the convolutions of image models, without a GPU: cuDNN is
 * asked what it would do on one that is described to it. What attention is
 * stated as, it takes; its kernels are compiled on the GPU's machine. */
#include "config.h"

#include <string.h>

#include "tap.h"

#ifdef HAVE_CUDNN
#include "kernels/cuda/cudnn.h"
#endif

#if defined(HAVE_CUDNN) && CUDNN_VERSION >= 91900

/* How the images of a digit, of CIFAR and of ImageNet go through a ResNet. */
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

/* The workspace of the plan, or -1: there is none. */
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

static void test_attention(void)
{
    for (int i = 0; i < 3; i++) {
        struct plan *p = calloc(1, sizeof(*p));
        struct build b = start(p, NULL);

        p->key.attention = (struct shape){.backward = i > 0,
                                          .zeroed = i > 1,
                                          .type = PLAIT_BF16_T,
                                          .batch = 2,
                                          .len = 128,
                                          .q_heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 64,
                                          .q_stride = 512,
                                          .kv_stride = 512};
        cudnn_state_attention(&b);
        ok(b.status == CUDNN_STATUS_SUCCESS && b.nops > 10,
           "attention's %s can be stated: %d operations",
           i == 0   ? "forward"
           : i == 1 ? "backward that adds"
                    : "backward",
           b.nops);
        forget(p);
    }
}

int main(void)
{
    if (cudnnGetVersion() < 91900)
        return skip_all("this cuDNN plans for no GPU that is not there");
    for (size_t i = 0; i < sizeof(gpus) / sizeof(*gpus); i++)
        test_convs(&gpus[i]);
    test_refused();
    test_attention();
    return done_testing();
}

#else

int main(void)
{
    return skip_all("configured without cuDNN 9.19 or later");
}

#endif
