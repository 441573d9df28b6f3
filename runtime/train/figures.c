/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/figures.h"

#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "topology/node/node.h"

/* Detecting GPUs takes time. Figures are only needed for sums across nodes and
 * for products that alternate with transfers over tp. */
static bool asks_for_figures(const struct plait_world *w,
                             const struct plait_layout *layout)
{
    return layout->size[PLAIT_TP] > 1 ||
           (plait_comm_size(w->comm) > 1 &&
            !(w->planned && w->launch.nnodes == 1));
}

/* The type of this rank's device, NULL: unknown. */
static const char *device_type(const struct plait_world *w)
{
    int gpu = w->planned ? w->launch.gpu : 0;
    const char *type = NULL;
    struct plait_error err;
    struct plait_node *node;

    if (!w->ops->gpu)
        return "cpu";
    node = plait_node_create(1, &err);
    if (node && gpu >= 0 && gpu < node->ngpus)
        type = plait_gpu_type_of(&node->gpus[gpu]);
    plait_node_destroy(node);
    return type;
}

static int find_figures(const struct plait_world *w,
                        const struct plait_layout *layout,
                        struct plait_figures *figures, struct plait_error *err)
{
    struct plait_site *site = plait_site_create(plait_site_path(), err);
    const char *type = NULL;
    int rc;

    if (!site)
        return -1;
    /* Where the type is unknown or was not looked for, the site's own type is
     * used. */
    if (!w->ops->gpu || asks_for_figures(w, layout))
        type = device_type(w);
    rc = plait_site_gpu_type(site, type, &figures->gpu, err);
    figures->network = site->network;
    plait_site_destroy(site);
    return rc;
}

int plait_figures_find(const struct plait_world *world,
                       const struct plait_layout *layout,
                       struct plait_figures *figures, struct plait_error *err)
{
    struct plait_figures f;
    int rc = 0;

    memset(&f, 0, sizeof(f));
    if (plait_comm_rank(world->comm) == 0)
        rc = find_figures(world, layout, &f, err);
    if (plait_error_consensus(world->comm, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(world->comm, &f, sizeof(f), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world->comm));
    *figures = f;
    return 0;
}

/* For processors: the cores of this node, divided among its ranks. */
static void set_processors(const struct plait_world *w,
                           struct plait_gpu_type *gpu)
{
    plait_gpu_type_set_cores(gpu, (double)sysconf(_SC_NPROCESSORS_ONLN));
    gpu->per_node = gpu->domain = w->node_ranks > 0 ? w->node_ranks : 1;
    gpu->threads = w->threads;
}

int plait_figures_device(const struct plait_world *world,
                         struct plait_gpu_type *gpu)
{
    const char *type = device_type(world);
    struct plait_error err;
    struct plait_site *site;
    int rc;

    if (!type)
        return -1;
    site = plait_site_create(plait_site_path(), &err);
    if (!site)
        return -1;
    rc = plait_site_gpu_type(site, type, gpu, &err);
    plait_site_destroy(site);
    if (rc == 0 && gpu->cores > 0)
        set_processors(world, gpu);
    return rc;
}

bool plait_figures_job_comment(void)
{
    struct plait_error err;
    struct plait_site *site = plait_site_create(plait_site_path(), &err);
    bool allowed = site && site->job_comment;

    plait_site_destroy(site);
    return allowed;
}
