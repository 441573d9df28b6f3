/* SPDX-License-Identifier: Apache-2.0 */
/* Loads plait_cuda.so where a program asks for the GPU's operations, so that no
 * program is linked to CUDA. */
#include "config.h"

#include <errno.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "kernels/same_build.h"

#ifdef HAVE_CUDA
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What plait_cuda.so exports: its op table, or NULL with a reason and errno
 * ENODEV if it finds no GPU, EIO if it finds one that does not work, and ENOENT
 * if it cannot tell because there is no driver. */
typedef const struct plait_ops *cuda_ops_fn(const char **why);

static struct {
    pthread_once_t once;
    const struct plait_ops *ops;
    int error;
    char why[PATH_MAX + 200];
} cuda = {.once = PTHREAD_ONCE_INIT};

/* Whether this process can see an NVIDIA GPU. */
static int is_visible(void)
{
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    char path[32];

    if (hidden != NULL && (*hidden == '\0' || strcmp(hidden, "-1") == 0))
        return 0;
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof(path), "/dev/nvidia%d", i);
        if (access(path, F_OK) == 0)
            return 1;
    }
    return 0;
}

/* The module's function. NULL with cuda.why: it is of another build. */
static cuda_ops_fn *find_entry(void *handle, const char *path)
{
    static const struct plait_build mine = PLAIT_CUDA_BUILD;
    cuda_ops_fn *entry;

    *(void **)&entry = dlsym(handle, "plait_cuda_ops");
    if (entry != NULL &&
        plait_build_is(dlsym(handle, "plait_cuda_build"), &mine))
        return entry;
    cuda.error = EIO;
    snprintf(cuda.why, sizeof(cuda.why),
             "%s: is of another build of Plait than this program (%s); "
             "install both from one, and start again",
             path, PACKAGE_VERSION);
    return NULL;
}

static void load_cuda(void)
{
    const char *dir = getenv("PLAIT_MODULE_PATH"), *why = NULL;
    char path[PATH_MAX];
    cuda_ops_fn *entry;
    void *handle;

    if (dir == NULL || *dir == '\0')
        dir = PLAIT_MODULEDIR;
    snprintf(path, sizeof(path), "%s/plait_cuda.so", dir);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        /* Not an error if there is no GPU: such nodes lack the CUDA
         * libraries. */
        cuda.error = is_visible() ? EIO : ENODEV;
        snprintf(cuda.why, sizeof(cuda.why), "%s", dlerror());
        return;
    }
    entry = find_entry(handle, path);
    if (entry == NULL) {
        dlclose(handle);
        return;
    }
    cuda.ops = entry(&why);
    if (cuda.ops == NULL) {
        cuda.error = errno != ENOENT ? errno : is_visible() ? EIO : ENODEV;
        snprintf(cuda.why, sizeof(cuda.why), "%s",
                 why != NULL ? why : "no CUDA device");
    }
}

const struct plait_ops *plait_ops_cuda(const char **why)
{
    pthread_once(&cuda.once, load_cuda);
    if (cuda.ops == NULL) {
        errno = cuda.error;
        if (why != NULL)
            *why = cuda.why;
    }
    return cuda.ops;
}

int plait_cuda_configured(void)
{
    return 1;
}
#else
int plait_cuda_configured(void)
{
    return 0;
}

const struct plait_ops *plait_ops_cuda(const char **why)
{
    if (why != NULL)
        *why = "this plait was built without CUDA";
    errno = ENOSYS;
    return NULL;
}
#endif
