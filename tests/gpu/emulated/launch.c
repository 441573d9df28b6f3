/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels, and the conditions that CUDA has for one. */
#include <stdlib.h>

#include "machine.h"
#include "runtime.h"

#define KERNELS 256

/* Dynamic shared memory that cudaFuncSetAttribute has allowed to kernels. */
static struct {
    const void *kernel;
    size_t bytes;
} allowed[KERNELS];
static int nallowed;

static size_t allowed_shared(const void *kernel)
{
    for (int i = 0; i < nallowed; i++)
        if (allowed[i].kernel == kernel)
            return allowed[i].bytes;
    return EMU_SHARED_PLAIN;
}

cudaError_t cudaFuncSetAttribute(const void *kernel,
                                 enum cudaFuncAttribute attribute, int value)
{
    int i = 0;

    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > EMU_SHARED_MOST)
        return emu_result(cudaErrorInvalidValue);
    emu_lock();
    while (i < nallowed && allowed[i].kernel != kernel)
        i++;
    if (i == KERNELS)
        abort();
    nallowed += i == nallowed;
    allowed[i].kernel = kernel;
    allowed[i].bytes = (size_t)value;
    emu_unlock();
    return emu_result(cudaSuccess);
}

static void do_launch(void *arg, bool backwards)
{
    emu_run(arg, backwards);
}

static void forget_launch(void *arg)
{
    struct emu_launch *l = arg;

    l->forget(l->closure);
    free(l);
}

/* Whether the shape of a launch is one that CUDA takes. */
static bool check_shape(const struct emu_launch *l)
{
    const struct emu_index *g = &l->grid, *b = &l->block;
    size_t threads = (size_t)b->x * b->y * b->z;

    if (threads == 0 || threads > EMU_THREADS || b->z > 64) {
        emu_fault("%s: a block of %u x %u x %u threads", l->name, b->x, b->y,
                  b->z);
        return false;
    }
    if (g->x == 0 || g->y == 0 || g->z == 0 || g->x > 0x7fffffff ||
        g->y > 65535 || g->z > 65535) {
        emu_fault("%s: a grid of %u x %u x %u blocks", l->name, g->x, g->y,
                  g->z);
        return false;
    }
    if (l->shared > allowed_shared(l->kernel)) {
        emu_fault("%s: %zu bytes of shared memory, allowed are %zu", l->name,
                  l->shared, allowed_shared(l->kernel));
        return false;
    }
    return true;
}

long long emu_clock(void)
{
    static long long now;

    return now += 100000000;
}

void emu_launch_kernel(const char *name, const void *kernel,
                       const unsigned grid[3], const unsigned block[3],
                       size_t shared, cudaStream_t stream, size_t params,
                       void (*body)(void *), void (*forget)(void *),
                       void *closure)
{
    struct emu_launch *l = malloc(sizeof(*l));

    if (l == NULL)
        abort();
    *l = (struct emu_launch){
        .name = name,
        .kernel = kernel,
        .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]},
        .shared = shared,
        .params = params,
        .body = body,
        .closure = closure,
        .forget = forget,
    };
    emu_count("a-kernel");
    emu_lock();
    if (check_shape(l))
        emu_do(stream, name, do_launch, forget_launch, l);
    else
        forget_launch(l);
    emu_unlock();
}
