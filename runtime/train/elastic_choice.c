/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks that are left go on with: which layout, and from where. */
#define _GNU_SOURCE /* asprintf */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/train/elastic_private.h"
#include "topology/job/fits.h"

/* The layout with the most replicas for which there are enough ranks and that
 * the configuration allows: its batch must be divisible among them. */
static int choose_layout(const struct plait_elastic *e,
                         const struct plait_job_config *config,
                         const struct plait_members *m,
                         struct plait_layout *layout, struct plait_error *err)
{
    struct plait_error why;
    int needed;

    *layout = e->launch.layout;
    for (int dp = layout->size[PLAIT_DP]; dp > 0; dp--) {
        layout->size[PLAIT_DP] = dp;
        needed = plait_layout_world(layout);
        if (needed <= m->n && plait_layout_resolve(layout, needed, &why) == 0 &&
            plait_fits(config, layout, &why) == 0)
            return 0;
    }
    if (m->rank > 0) /* one rank reports it */
        return -1;
    return plait_errorf(err,
                        "%s is gone: no layout with tp %d, cp %d, ep %d, pp "
                        "%d fits the %d ranks that are left; the run ends",
                        e->who, layout->size[PLAIT_TP], layout->size[PLAIT_CP],
                        layout->size[PLAIT_EP], layout->size[PLAIT_PP], m->n);
}

int elastic_find_layout(const struct plait_elastic *e,
                        const struct plait_train_args *args,
                        const struct plait_members *m,
                        struct plait_layout *layout, struct plait_error *err)
{
    struct plait_job_config *config = plait_job_config_parse(
        args->config, e->config_text, strlen(e->config_text), args->set,
        args->nset, err);
    int rc = config ? choose_layout(e, config, m, layout, err) : -1;

    plait_job_config_destroy(config);
    return rc;
}

static bool saved_since(const char *dir, double began)
{
    struct stat st;
    char *path;
    bool is = false;

    if (!dir || asprintf(&path, "%s/latest", dir) < 0)
        return false;
    if (lstat(path, &st) == 0)
        is = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec >=
             began;
    free(path);
    return is;
}

int elastic_find_beginning(struct plait_session *s,
                           struct plait_train_args *args,
                           struct plait_error *err)
{
    const struct plait_checkpoint_config *c = &s->config->checkpoint;
    struct plait_elastic *e = s->elastic;
    double known[3] = {e->peak,
                       saved_since(c->dir, e->began) ||
                           saved_since(c->fallback, e->began),
                       (double)e->reached};

    if (plait_comm_host_all_reduce(s->world.comm, known, 3, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(s->world.comm));
    e->peak = known[0];
    e->reached = (int64_t)known[2];
    if (known[1] > 0)
        args->resume = "auto";
    return 0;
}
