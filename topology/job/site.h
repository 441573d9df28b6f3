/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_SITE_H
#define PLAIT_TOPOLOGY_JOB_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "topology/job/gpu_types.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an administrator knows better than the tables: one YAML document,
 * read by the commands and by the plugin. All keys may be left out:
 *     gpu_type: h100        # what the nodes have, where nobody says
 *     gpu_types:            # figures that replace those of gpu_types.c
 *       h100: {nic_gbytes_s: 46, nic_us: 5.1, oversubscription: 1}
 *       mi355x: {like: mi325x, tflops: 2516}    # a type of the site's own
 * `plait probe` measures and writes these two. Others are the plugin's:
 *     policies:             # every one that applies to a job must be kept
 *       - {partition: "gpu-*", gpu: h100, tp_within: nvlink, max: {tp: 8}}
 *       - {user: guest, enabled: false}
 *     export:               # what a task gets beside PLAIT_NICS
 *       {nccl_ib_hca: true, ucx_net_devices: true, fi_cxi_device_name: true}
 *     preflight:            # below it a link is broken; who is told of it
 *       {link: 0.25, hook: /usr/sbin/bad-nodes}
 *     too_large: warn       # or off: a model that does not fit; refuse
 *     rank_warning: false   # whether srun says where ranks are other numbers
 *                           # than SLURM_PROCID; true
 * and the runtime's, which also takes the figures of its devices:
 *     network:              # what the switches can do for a group
 *       {sharp: true, traffic_class: {dp: 106}}
 *     job_comment: true     # whether runs write into their jobs' comments
 * A further section is a line in site.c's table `sections` and a member
 * here. */
#define PLAIT_POLICIES_MOST 64
#define PLAIT_SITE_TYPES 16 /* GPU types of the site's own, at most */

enum plait_within { PLAIT_WITHIN_NODE, PLAIT_WITHIN_NVLINK };

/* What happens to a job whose --model does not fit its GPUs. */
enum plait_too_large {
    PLAIT_TOO_LARGE_REFUSE,
    PLAIT_TOO_LARGE_WARN,
    PLAIT_TOO_LARGE_OFF
};

struct plait_policy {
    /* Shell patterns of jobs that it applies to; NULL: any. */
    char *partition, *user, *account, *qos;
    char *gpu;    /* Slurm's name of the GPU type; NULL: any */
    bool enabled; /* false: such a job may use no flags */
    enum plait_within tp_within;
    int most[PLAIT_NAXES]; /* 0: no limit */
};

struct plait_site_export {
    bool nccl_ib_hca, ucx_net_devices, fi_cxi_device_name;
};

struct plait_site_network {
    bool sharp;                     /* switches can reduce: NCCL's CollNet */
    int traffic_class[PLAIT_NAXES]; /* of InfiniBand or RoCE; -1: the default */
};

struct plait_site_preflight {
    /* The least share of a link's planned rate, 0: it is not compared. */
    double link;
    /* A program that is started as the user when a node is not fit: an absolute
     * path; NULL: none. */
    char *hook;
};

struct plait_site {
    int gpu_type; /* into gpu_types */
    bool gpu_type_given;
    enum plait_too_large too_large;
    int ngpu_types; /* those of the table, then the site's own */
    struct plait_gpu_type gpu_types[PLAIT_NGPU_TYPES + PLAIT_SITE_TYPES];
    int like[PLAIT_NGPU_TYPES + PLAIT_SITE_TYPES]; /* the table's type that
                                                      each starts from */
    int npolicies;
    struct plait_policy policies[PLAIT_POLICIES_MOST];
    struct plait_site_export export;
    struct plait_site_network network;
    struct plait_site_preflight preflight;
    bool rank_warning;
    bool job_comment;
};

/* With NULL, or a file without any key: the tables as they are, and h100.
 * Errors name the line. */
struct plait_site *plait_site_create(const char *path, struct plait_error *err);
/* The same from memory; `name` stands for the file in errors. */
struct plait_site *plait_site_parse(const char *name, const char *text,
                                    size_t size, struct plait_error *err);
void plait_site_destroy(struct plait_site *site);

/* The site file that a user's command reads where no --site names one:
 * $PLAIT_SITE (empty: none), else /etc/plait/site.yaml (below the configured
 * sysconfdir) if there is one, else NULL. Not for programs that run with
 * another user's rights. */
const char *plait_site_path(void);

/* The figures of a type by its name in any case, NULL for the type that the
 * site's nodes have. */
int plait_site_gpu_type(const struct plait_site *site, const char *name,
                        struct plait_gpu_type *type, struct plait_error *err);

/* The name of the table's type that the site's own type `name` starts from;
 * NULL: `name` is not one of the site's own. */
const char *plait_site_like(const struct plait_site *site, const char *name);

/* Print the type's entry of gpu_types, its keys indented by four: the figures
 * that differ from the table's, so that reading them gives the same type. like:
 * what plait_site_like() says of it. */
void plait_site_print_type(FILE *out, const struct plait_gpu_type *type,
                           const char *like);

#ifdef __cplusplus
}
#endif
#endif
