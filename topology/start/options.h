/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_OPTIONS_H
#define PLAIT_TOPOLOGY_START_OPTIONS_H

#include <stdbool.h>

#include "topology/base/error.h"
#include "topology/layout/layout.h"
#include "topology/plan/plan.h"

/* The flags that the plugin adds to srun, sbatch and salloc. The first five
 * are the axes, in their order. */
enum plait_option {
    PLAIT_OPTION_ORDER = PLAIT_NAXES,
    PLAIT_OPTION_PLACEMENT,
    PLAIT_OPTION_PIN,
    PLAIT_OPTION_RENDEZVOUS,
    PLAIT_OPTION_SHOW_PLAN,
    PLAIT_OPTION_MODEL,
    PLAIT_OPTION_PREFLIGHT,
    PLAIT_OPTION_SPARES,
    PLAIT_OPTION_REPORT,
    PLAIT_NOPTIONS
};

struct plait_option_text {
    const char *name;     /* without the dashes; in plugstack.conf, too */
    const char *flag;     /* of srun, sbatch and salloc; NULL: the same. A flag
                             must not make an abbreviation of one of Slurm's
                             ambiguous: --pre is --prefer, --sp --spread-job */
    const char *argument; /* NULL: takes none */
    const char *help;
};

extern const struct plait_option_text plait_option_texts[PLAIT_NOPTIONS];

struct plait_options {
    unsigned given;             /* bit per enum plait_option */
    struct plait_layout layout; /* sizes that were not given are 1 */
    int order_free;             /* --rank-order=auto */
    enum plait_placement placement;
    int pin;        /* bind GPUs, cores and NICs */
    int rendezvous; /* export MASTER_ADDR & co. */
    int show_plan;
    int preflight;
    int spares; /* nodes that may be left out; above 0 implies a preflight */
    int measure_only; /* the preflight of --spares itself, in a step of its own:
                         a site's defaults, forced values and policies do not
                         apply, and its tasks never start their command */
    char model[1024]; /* the model's file, "" none; never opened as root */
    char report[1024]; /* that of a preflight, "" none; likewise */
};

/* The name as a flag of srun, sbatch and salloc. */
const char *plait_option_flag(enum plait_option option);

/* No flag given. */
void plait_options_init(struct plait_options *options);

/* Take one flag; the last of several wins. `value` may be NULL only where
 * the flag takes no argument. */
int plait_options_set(struct plait_options *options, enum plait_option option,
                      const char *value, struct plait_error *err);

/* Whether both ask for the same plan and environment: a site can force flags of
 * which that depends. */
bool plait_options_same(const struct plait_options *a,
                        const struct plait_options *b);

/* Add to an error that names sizes (--pp=2) whose those are that the command
 * itself was not given: of `job`, bit per enum plait_option, the job's in which
 * it runs, the rest the site's. `named` are the command's own. */
void plait_options_name_owners(const struct plait_options *options,
                               unsigned named, unsigned job,
                               struct plait_error *err);

/* The layout that the flags request. Where no size is "auto", the first of
 * dp, pp, cp and tp that was left out becomes PLAIT_AUTO. */
void plait_options_layout(const struct plait_options *options,
                          struct plait_layout *layout);

#endif
