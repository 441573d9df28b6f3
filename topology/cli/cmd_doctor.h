/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_H
#define PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_H

/* plait doctor: one sentence for each thing that was looked at. */

enum finding_kind {
    FINDING_GOOD,
    FINDING_NOTE, /* good to know, or not to be told from here */
    FINDING_BAD   /* something does not work, and this is what to do */
};

enum { FINDINGS_MOST = 64 };

struct finding {
    enum finding_kind kind;
    const char *about; /* one word */
    char text[400];
};

struct findings {
    int n;
    struct finding list[FINDINGS_MOST];
};

void findings_add(struct findings *findings, enum finding_kind kind,
                  const char *about, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* What plugstack.conf tells the plugin, as far as the rest needs it. */
struct plugin_setup {
    char cache[1024]; /* "" none */
    char site[1024];  /* "" the default place */
};

/* Slurm, the plugin in it, and what srun makes of them. */
void doctor_check_slurm(struct findings *findings, struct plugin_setup *setup);

#endif
