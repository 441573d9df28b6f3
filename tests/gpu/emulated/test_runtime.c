/* SPDX-License-Identifier: Apache-2.0 */
/* The code around the kernels: kept plans, and recordings that fail. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/linear.h"
#include "kernels/products.h"
#include "tap.h"

enum { ROWS = 4000, SIDE = 8 };

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

/* Products of every count of rows, as experts need them, share few plans. */
static void plans_check(const int *products)
{
    float *x = ops->alloc(dev, (ROWS + 1) * SIDE * sizeof(*x));
    float *y = ops->alloc(dev, (ROWS + 1) * SIDE * sizeof(*y));
    float *w = ops->alloc(dev, SIDE * SIDE * sizeof(*w));
    struct plait_weight *weight = ops->weight_create(
        dev, &(struct plait_weight_data){PLAIT_F32, SIDE, SIDE, w});
    struct plait_linear l = {.inp.x = x, .w = weight, .out = y};
    int most = 0, rc = 0, lines;
    char *wanted;

    for (size_t n = 1; n <= ROWS; n++) {
        l.N = n;
        rc |= ops->linear_forward(q, &l);
        most = *products > most ? *products : most;
    }
    wanted = ops->products->wanted(dev);
    lines = count_lines(wanted);
    diag("%d plans at most, %d are searched for", most, lines);
    ok(rc == 0 && most <= 2048, "plans of %d products are bounded", ROWS);
    ok(lines > 0 && lines <= 128, "sizes share what a search finds");
    free(wanted);
    ops->weight_destroy(weight);
    ops->free(dev, w);
    ops->free(dev, y);
    ops->free(dev, x);
}

/* A search frees all it has allocated, and what it has found is not searched
 * for again. */
static void search_check(void)
{
    float *x = ops->alloc(dev, (size_t)2 * 64 * SIDE * sizeof(*x));
    struct plait_weight *w = ops->weight_create(
        dev, &(struct plait_weight_data){PLAIT_F32, SIDE, SIDE, x});
    struct plait_linear l = {.N = 64, .inp.x = x, .w = w, .out = x + 64 * SIDE};
    char *wanted, *choice;
    int rc = ops->linear_forward(q, &l);

    wanted = ops->products->wanted(dev);
    choice = ops->products->search(q, wanted);
    ok(rc == 0 && count_lines(wanted) == 1 && choice != NULL,
       "a product is searched for");
    free(wanted);
    ok(choice != NULL && ops->products->choose(dev, choice) == 0,
       "... what is found is taken");
    ok(ops->products->choose(dev, "no choice\n") == 1, "... and no nonsense");
    rc = ops->linear_forward(q, &l);
    wanted = ops->products->wanted(dev);
    ok(rc == 0 && wanted != NULL && *wanted == '\0', "... once");
    free(wanted);
    free(choice);
    ops->products->leave_room(dev, 16, 16);
    rc = ops->linear_forward(q, &l);
    ops->products->leave_room(dev, -16, -16);
    wanted = ops->products->wanted(dev);
    choice = ops->products->search(q, wanted);
    ok(rc == 0 && count_lines(wanted) == 1 && choice != NULL &&
           strstr(choice, " room 16" PLAIT_CHOICE_MARK) != NULL,
       "... again where 16 multiprocessors are held");
    free(wanted);
    free(choice);
    ops->weight_destroy(w);
    ops->free(dev, x);
}

/* An op with invalid arguments fails the queue also while it is recorded. */
static void wrong_check(void)
{
    struct plait_queue *own = ops->queue_create(dev, 0);
    float *x = ops->alloc(dev, 256);
    const char *why = NULL;
    struct plait_graph *graph;
    int rc = ops->graph_begin(own);

    /* 4 rows of 8 numbers that begin 2 numbers apart, so that they overlap */
    rc |= ops->copy_2d(own, &(struct plait_copy_2d){.type = PLAIT_F32,
                                                    .dst = x,
                                                    .dst_stride = 2,
                                                    .src = x + 32,
                                                    .src_stride = 2,
                                                    .rows = 4,
                                                    .cols = 8}) == 0;
    graph = ops->graph_end(own, &why);
    ok(rc == 0 && graph == NULL && plait_queue_error(own) != NULL,
       "an op that is wrong is not forgiven for being recorded: %s",
       why != NULL ? why : "");
    ops->queue_destroy(own);
    ops->free(dev, x);
}

/* Ops that cannot be recorded make the recording fail, not the queue; a device
 * that failed is not forgiven. */
static void recording_check(void)
{
    float *x = ops->alloc(dev, 64), host[16] = {0};
    const char *why = NULL;
    struct plait_graph *graph;
    int rc = ops->graph_begin(q);

    rc |= ops->to_device(q, x, host, 64) == 0;
    graph = ops->graph_end(q, &why);
    ok(rc == 0 && graph == NULL && why != NULL,
       "a copy from the host is not recorded: %s", why != NULL ? why : "");
    ok(plait_queue_error(q) == NULL && ops->to_device(q, x, host, 64) == 0,
       "... and the queue goes on");
    why = NULL;
    ops->graph_begin(q);
    ops->copy(q, x, x + 8, 64);
    graph = ops->graph_end(q, &why);
    ok(graph == NULL && plait_queue_error(q) != NULL,
       "after a failure of the device it does not: %s", why != NULL ? why : "");
    ops->free(dev, x);
}

int main(void)
{
    const char *why = NULL, *dir = getenv("PLAIT_MODULE_PATH");
    char path[4096];
    void *module;
    int *products;

    ops = plait_ops_cuda(&why);
    if (ops == NULL)
        return skip_all(why);
    snprintf(path, sizeof(path), "%s/plait_cuda.so", dir);
    module = dlopen(path, RTLD_NOW);
    products = module != NULL ? dlsym(module, "emu_products") : NULL;
    dev = ops->device_create(0, 0);
    q = dev != NULL ? ops->queue_create(dev, 0) : NULL;
    ok(q != NULL && products != NULL, "the emulated GPU is there");
    if (q == NULL || products == NULL)
        return done_testing();
    plans_check(products);
    search_check();
    wrong_check();
    recording_check();
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    ok(*products == 0, "no plan is left");
    dlclose(module);
    return done_testing();
}
