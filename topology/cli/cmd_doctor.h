/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_H
#define PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_H

#include <stddef.h>

#include "topology/base/error.h"

/* plait doctor: one sentence for each check. */

enum finding_kind {
    FINDING_GOOD,
    FINDING_NOTE,      /* good to know */
    FINDING_UNCHECKED, /* it could not be checked; the text says why */
    FINDING_BAD        /* something does not work; the text says what to do */
};

/* "good", "note", "unchecked", "bad" */
extern const char *const finding_names[];

enum { FINDINGS_MOST = 64, DOCTOR_PATH = 1024, DOCTOR_LINES = 8 };

struct finding {
    enum finding_kind kind;
    const char *about; /* one word */
    char text[600];
};

struct findings {
    int n;
    struct finding list[FINDINGS_MOST];
};

void findings_add(struct findings *findings, enum finding_kind kind,
                  const char *about, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Mark, word and text of a finding, in lines of a terminal's width. */
void finding_print(enum finding_kind kind, const char *about, const char *text);

/* A line of plugstack.conf, or of a file that it includes, that names the
 * plugin. */
struct plugin_line {
    char mode[16];           /* "optional" or "required" */
    char name[DOCTOR_PATH];  /* spank_plait.so, as the line has it */
    char where[DOCTOR_PATH]; /* "/etc/slurm/plugstack.conf:3" */
};

/* What the checks learn from each other. */
struct doctor {
    struct findings *findings;
    int slurm;              /* there is a srun on PATH */
    char *config;           /* scontrol show config; NULL: nobody answered */
    char why[256];          /* nobody did */
    int major, minor;       /* Slurm's release; 0: not known */
    char srun_fails[256];   /* how, "": srun runs */
    char conf[DOCTOR_PATH]; /* this host's slurm.conf, "": there is none */
    int nlines;
    struct plugin_line lines[DOCTOR_LINES];
    char cache[DOCTOR_PATH];   /* "" none */
    char site[DOCTOR_PATH];    /* "" the default place */
    char library[DOCTOR_PATH]; /* the plugin that can be loaded, "": none */
    int broken;                /* plugstack.conf or the plugin is */
};

/* cmd_doctor_slurm.c: whether the commands work, and who answers. */
void doctor_check_slurm(struct doctor *doctor);
/* After the plugin has been checked: what srun knows of it, MPI, ports. */
void doctor_check_srun(struct doctor *doctor);
/* A setting: of the controller where it answers, else of this host's file. ""
 * where neither says. */
void doctor_setting(const struct doctor *doctor, const char *name, char *value,
                    size_t size);
/* A setting in this host's slurm.conf alone. */
void doctor_local_setting(const struct doctor *doctor, const char *name,
                          char *value, size_t size);
/* The output of a command; NULL, with its last line in `why`, if it fails.
 * errno is ENOENT where it is not installed, and 0 where it ran. */
char *doctor_run(char *const argv[], int seconds, char *why, size_t room);

/* cmd_doctor_munge.c: whether munged answers. */
void doctor_check_munge(struct doctor *doctor);
/* cmd_doctor_plugstack.c: which lines name the plugin. */
void doctor_check_plugstack(struct doctor *doctor);
/* cmd_doctor_library.c: whether Slurm can load what they name. */
void doctor_check_library(struct doctor *doctor);
/* Slurm looks a plain name up in the directories of PluginDir. 0 with the path,
 * or -1; dirs, "" where nobody knows them, in both cases. */
int doctor_search_plugins(const struct doctor *doctor, const char *name,
                          char dirs[DOCTOR_PATH], char path[DOCTOR_PATH]);
/* cmd_doctor_label.c: whether SELinux or AppArmor may keep it from that. */
void doctor_check_label(struct findings *findings, const char *path);
/* cmd_doctor_cache.c, cmd_doctor_site.c, cmd_doctor_gpus.c */
void doctor_check_cache(struct doctor *doctor);
void doctor_check_site(struct doctor *doctor);
void doctor_check_machine(const struct doctor *doctor);

/* cmd_doctor_user.c. Whether a user can read the file: 0, or an errno; root
 * asks for nobody. -1: that cannot be found out. */
int doctor_user_reads(const char *path);
/* Run work(arg, fd) in a child with nobody's rights where this is root, and
 * return what it writes; NULL with errno. A child that dies writes less. */
char *doctor_as_user(void (*work)(void *arg, int fd), void *arg);

/* cmd_doctor_elf.c. Whether this machine could load the file: 0, or -1 with the
 * reason. The file is only read. Mapping or running it would kill the process
 * if it is cut short. */
int doctor_elf_check(const char *path, struct plait_error *err);

/* What tells installations apart: "plait 0.9.0, plugin 1f00ba12", the number
 * being made of the file's bytes. */
void doctor_version(const struct doctor *doctor, char *text, size_t size);

/* cmd_doctor_nodes.c: the same on other nodes, started by one srun. `version`
 * is this host's. Returns the exit status. */
int doctor_nodes(const char *list, const char *version, int json, int strict);
/* What a node of it prints: a line of JSON for each finding, and a last one. */
void doctor_report(const struct findings *findings);
/* The exit status for what was found. */
int doctor_exit(int bad, int unchecked, int strict);

#endif
