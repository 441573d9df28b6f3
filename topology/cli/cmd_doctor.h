/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_H
#define PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_H

/* plait doctor: one sentence for each check. */

enum finding_kind {
    FINDING_GOOD,
    FINDING_NOTE, /* good to know, or cannot be checked from here */
    FINDING_BAD   /* something does not work; the text says what to do */
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

/* The plugin's settings in plugstack.conf that other checks need. */
struct plugin_setup {
    char cache[1024]; /* "" none */
    char site[1024];  /* "" the default place */
};

/* Check Slurm, the plugin in it, and what srun knows of the plugin. */
void doctor_check_slurm(struct findings *findings, struct plugin_setup *setup);

#endif
