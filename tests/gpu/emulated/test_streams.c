/* SPDX-License-Identifier: Apache-2.0 */
/* Queues, events, pinned memory and recordings, used correctly as the trainer
 * does, so that nothing is reported. mutants.py runs this over copies of
 * kernels/cuda with a mistake. */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tap.h"

enum { N = 2048, BYTES = N * 4, MUCH = 9 << 20 };

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q, *beside;
static struct plait_event *event;
static float *x, *y, *z, host[N];

static int holds(const float *p, float value)
{
    memset(host, 0, sizeof(host));
    if (p == NULL || ops->to_host(q, host, p, BYTES) < 0)
        return 0;
    for (int i = 0; i < N; i++)
        if (host[i] != value)
            return 0;
    return 1;
}

static int set(float *p, float value)
{
    for (int i = 0; i < N; i++)
        host[i] = value;
    return ops->to_device(q, p, host, BYTES);
}

static int follow(struct plait_queue *later, struct plait_queue *first)
{
    return ops->event_record(event, first) | ops->event_wait(event, later);
}

/* The second queue reads what the first one wrote, and writes what it reads. */
/* out = a + b */
static int add(struct plait_queue *on, float *out, const float *a,
               const float *b)
{
    return ops->add(on,
                    &(struct plait_add){.out = out, .a = a, .b = b, .n = N});
}

static int twice(float *p)
{
    return ops->scale(q, &(struct plait_scale){.x = p, .s = 2, .n = N});
}

/* An operation that needs work space. */
static int add_columns(float *dbias, const float *dout)
{
    return ops->bias_backward(
        q, &(struct plait_bias_backward){
               .dbias = dbias, .dout = dout, .N = 32, .O = N / 32});
}

static int work(void)
{
    return add(q, y, x, x) | follow(beside, q) | add(beside, z, y, x) |
           ops->copy(beside, y, z, BYTES) | follow(q, beside) | add(q, x, y, z);
}

static void events_check(void)
{
    ok((set(x, 1) | work()) == 0 && holds(x, 6), "two queues, by events");
}

static void recording_check(void)
{
    const char *why = "";
    struct plait_graph *graph;
    int rc = set(x, 1) | ops->graph_begin(q) | work();

    rc |= add_columns(z, x);
    graph = ops->graph_end(q, &why);
    ok(rc == 0 && graph != NULL, "the same is recorded: %s", why);
    if (graph == NULL)
        return;
    rc = ops->graph_run(q, graph) | ops->graph_run(q, graph) | twice(x);
    ok(rc == 0 && holds(x, 72), "... and runs twice");
    ops->graph_destroy(graph);
}

/* Copies that are larger than the two staging buffers they go through. */
static void host_check(void)
{
    char *big = malloc(MUCH), *back = malloc(MUCH), *p = ops->alloc(dev, MUCH);

    for (int i = 0; i < MUCH; i++)
        big[i] = (char)(i % 251);
    ok(ops->to_device(q, p, big, MUCH) == 0 &&
           ops->to_host(q, back, p, MUCH) == 0 && memcmp(big, back, MUCH) == 0,
       "more than fits the buffers goes to the device and back");
    ops->free(dev, p);
    free(big);
    free(back);
}

static void pinned_check(void)
{
    float *p = ops->pinned_alloc(dev, 2 * BYTES);
    int rc;

    if (!ok(p != NULL, "memory of the host"))
        return;
    rc = set(x, 3) | ops->copy_out(q, p, x, BYTES);

    p[N] = 5; /* next to the copied bytes */
    rc |= ops->queue_sync(q);
    ok(rc == 0 && p[0] == 3 && p[N] == 5, "a copy to the host, waited for");
    for (int i = 0; i < N; i++)
        p[i] = 4;
    rc = ops->copy_in(q, x, p, BYTES);
    ops->pinned_free(dev, p);
    ok(rc == 0 && holds(x, 4), "a copy from the host, whose memory is freed");
}

/* The host waits for a copy while the queue has more work. */
static void summed_check(void)
{
    float *p = ops->pinned_alloc(dev, BYTES);
    int rc;

    if (!ok(p != NULL, "memory of the host"))
        return;
    rc = set(x, 3) | ops->copy_out(q, p, x, BYTES) |
         ops->event_record(event, q) | twice(x) | ops->event_sync(event, q);
    ok(rc == 0 && p[0] == 3 && p[N - 1] == 3 && holds(x, 6),
       "a copy that is read while the queue goes on");
    ops->pinned_free(dev, p);
}

static void free_check(void)
{
    float *p = ops->alloc(dev, BYTES);
    int rc = add(q, p, x, x);

    ops->free(dev, p);
    ok(rc == 0 && plait_queue_error(q) == NULL,
       "memory is freed after its use");
}

int main(void)
{
    const char *why = NULL;

    ops = plait_ops_cuda(&why);
    if (ops == NULL)
        return skip_all(why);
    dev = ops->device_create(0, 0);
    q = dev != NULL ? ops->queue_create(dev, 0) : NULL;
    beside = q != NULL ? ops->queue_create(dev, 1) : NULL;
    event = beside != NULL ? ops->event_create(dev, 0) : NULL;
    if (!ok(event != NULL, "two queues and an event"))
        return done_testing();
    x = ops->alloc(dev, BYTES);
    y = ops->alloc(dev, BYTES);
    z = ops->alloc(dev, BYTES);
    /* once before it is recorded, which allocates its workspace */
    add_columns(z, x);
    events_check();
    if (ops->graph_begin != NULL)
        recording_check();
    host_check();
    pinned_check();
    summed_check();
    free_check();
    ops->free(dev, x);
    ops->free(dev, y);
    ops->free(dev, z);
    ok(plait_queue_error(q) == NULL && plait_queue_error(beside) == NULL,
       "nothing is reported");
    ops->event_destroy(event);
    ops->queue_destroy(beside);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return done_testing();
}
