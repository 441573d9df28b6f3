/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU modules load into a program that has none of their symbols, and all
 * their symbols are resolved, whether or not there is a GPU. */
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "kernels/same_build.h"
#include "runtime/comm/backend.h"
#include "tap.h"

static void *load(const char *name)
{
    const char *dir = getenv("PLAIT_MODULE_PATH");
    char path[PATH_MAX];
    void *handle;

    snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : PLAIT_MODULEDIR,
             name);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!ok(handle != NULL, "%s loads", name))
        diag("%s", dlerror());
    return handle;
}

/* Whether all members after device_create are functions, too. */
static int whole(const struct plait_ops *ops)
{
    void *const *entry = (void *const *)&ops->device_create;
    void *const *end = (void *const *)(ops + 1);

    for (size_t i = 0; entry + i < end; i++)
        if (entry[i] == NULL)
            return 0;
    return 1;
}

static void test_cuda(void)
{
    const struct plait_build cuda_build = PLAIT_CUDA_BUILD;
    const struct plait_build other = {
        PACKAGE_VERSION,
        {sizeof(struct plait_ops) + 8, sizeof(struct plait_gpu_facts)}};
    const struct plait_ops *(*entry)(const char **why), *ops;
    void *handle = load("plait_cuda.so");
    const char *why = NULL;

    if (handle == NULL)
        return;
    *(void **)&entry = dlsym(handle, "plait_cuda_ops");
    if (!ok(entry != NULL, "plait_cuda.so exports plait_cuda_ops"))
        return;
    ok(plait_build_is(dlsym(handle, "plait_cuda_build"), &cuda_build) &&
           !plait_build_is(&other, &cuda_build) &&
           !plait_build_is(NULL, &cuda_build),
       "it is of this build, and another one is not");
    ops = entry(&why);
    if (ops != NULL)
        ok(strcmp(ops->name, "cuda") == 0 && ops->gpu && whole(ops),
           "the table has every op");
    else
        ok(why != NULL && *why != '\0' && access("/dev/nvidia0", F_OK) != 0,
           "no table where there is no GPU, and it says why: %s",
           why != NULL ? why : "");
}

#ifdef HAVE_NCCL
static void test_nccl(void)
{
    const struct plait_build mine = PLAIT_NCCL_BUILD;
    void *handle = load("plait_nccl.so");

    if (handle == NULL)
        return;
    ok(dlsym(handle, "plait_nccl_create") != NULL,
       "plait_nccl.so exports plait_nccl_create");
    ok(plait_build_is(dlsym(handle, "plait_nccl_build"), &mine),
       "it is of this build");
}

#endif

int main(void)
{
    test_cuda();
#ifdef HAVE_NCCL
    test_nccl();
#endif
    return done_testing();
}
