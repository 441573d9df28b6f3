/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/node/node.h"

static struct plait_node *one_of_everything(void)
{
    const char *top = getenv("top_srcdir");
    char path[4096];

    snprintf(path, sizeof(path),
             "%s/tests/fixtures/hwloc/one-of-everything.xml", top ? top : ".");
    return plait_node_create_xml(path, NULL);
}

/* The PUs that each task gets, "0-1 2-3 ..."; also checks that no PU is given
 * twice unless there are too few. */
static const char *divide(const struct plait_node *node, const char *allowed,
                          const int *gpus, int ntasks)
{
    static char text[1024];
    hwloc_bitmap_t from = hwloc_bitmap_alloc(), cpus = hwloc_bitmap_alloc();
    int i, n = 0;

    hwloc_bitmap_list_sscanf(from, allowed);
    text[0] = '\0';
    for (i = 0; i < ntasks; i++) {
        if (plait_node_bind(node, from, gpus, ntasks, i, cpus))
            n += snprintf(text + n, sizeof(text) - (size_t)n, "error ");
        n += hwloc_bitmap_list_snprintf(text + n, sizeof(text) - (size_t)n,
                                        cpus);
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      i + 1 < ntasks ? " " : "");
    }
    hwloc_bitmap_free(from);
    hwloc_bitmap_free(cpus);
    return text;
}

static void is_divided(const struct plait_node *node, const char *allowed,
                       const int *gpus, int ntasks, const char *expected)
{
    const char *got = divide(node, allowed, gpus, ntasks);

    if (!ok(strcmp(got, expected) == 0, "%s over %d tasks%s: %s", allowed,
            ntasks, gpus ? " with GPUs" : "", expected))
        diag("got %s", got);
}

static void test_bind(void)
{
    struct plait_node *node =
        plait_node_create_synthetic("pack:2 numa:1 core:4 pu:2", NULL);
    int none[2] = {-1, -1}, both[4] = {0, 1, 2, 3}, low[2] = {0, 1};
    int mixed[3] = {-1, 0, -1}, unknown[2] = {17, 18};

    ok(node && node->ngpus == 0 && node->cores == 8 && node->pus == 16,
       "a synthetic machine");
    is_divided(node, "0-15", NULL, 1, "0-15");
    is_divided(node, "0-15", NULL, 2, "0-7 8-15");
    is_divided(node, "0-15", NULL, 3, "0-3 4-9 10-15");
    is_divided(node, "0-15", NULL, 8, "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15");
    is_divided(node, "0-15", none, 2, "0-7 8-15");
    is_divided(node, "0-15", unknown, 2, "0-7 8-15");
    is_divided(node, "4-11", NULL, 2, "4-7 8-11");
    is_divided(node, "3", NULL, 2, "3 3");
    is_divided(node, "0,2,4", NULL, 2, "0 2,4");
    is_divided(node, "0-1", NULL, 2, "0 1");
    plait_node_destroy(node);

    node = one_of_everything();
    if (!node)
        return;
    is_divided(node, "0-3", both, 4, "0 1 2 3");
    is_divided(node, "0-3", low, 2, "0 1");
    is_divided(node, "0-3", low, 1, "0-1");
    is_divided(node, "0-3", mixed, 3, "2 0-1 3");
    /* No allowed PU is near the GPU: the tasks get others. */
    is_divided(node, "2-3", low, 2, "2 3");
    plait_node_destroy(node);
}

int main(void)
{
    test_bind();
    return done_testing();
}
