/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "topology/cli/cmd_doctor.h"

/* SELinux and AppArmor decide by their policies, which are not asked here: what
 * can be read is whether they are on, how the file is labelled, and how
 * slurmd is confined. */

enum { LABEL_MOST = 256 };

/* The first line of a small file; "" if there is none. */
static void read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");

    if (!file || !fgets(line, (int)size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* The type, "lib_t", of "system_u:object_r:lib_t:s0". */
static int read_type(const char *path, char type[LABEL_MOST])
{
    char label[LABEL_MOST], *save, *word = label;
    ssize_t n = getxattr(path, "security.selinux", label, sizeof(label) - 1);

    type[0] = '\0';
    if (n <= 0)
        return -1;
    label[n] = '\0';
    for (int i = 0; i < 3 && word; i++)
        word = strtok_r(i ? NULL : label, ":", &save);
    snprintf(type, LABEL_MOST, "%s", word ? word : "");
    return type[0] ? 0 : -1;
}

/* Slurm's own plugins are what slurmd may load. */
static void find_neighbour(const char *path, char *neighbour, size_t size)
{
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;

    snprintf(neighbour, size, "%.*s/auth_munge.so", n, path);
}

static void check_selinux(struct findings *f, const char *path)
{
    char type[LABEL_MOST], theirs[LABEL_MOST], enforce[8];
    char neighbour[DOCTOR_PATH + 32];
    int on;

    read_line("/sys/fs/selinux/enforce", enforce, sizeof(enforce));
    on = enforce[0] == '1';
    find_neighbour(path, neighbour, sizeof(neighbour));
    if (read_type(path, type) < 0) {
        findings_add(f, FINDING_UNCHECKED, "label",
                     "SELinux is on, and the label of %.200s cannot be read: "
                     "%s",
                     path, strerror(errno));
        return;
    }
    if (read_type(neighbour, theirs) < 0)
        snprintf(theirs, sizeof(theirs), "lib_t");
    if (strcmp(type, theirs) != 0)
        findings_add(f, on ? FINDING_BAD : FINDING_NOTE, "label",
                     "%.150s has SELinux's label %.60s, and %.60s is what "
                     "libraries have: SELinux may keep slurmd from reading "
                     "it%s; run restorecon -v on it",
                     path, type, theirs, on ? "" : " once SELinux enforces");
    else
        findings_add(f, FINDING_GOOD, "label",
                     "SELinux labels the plugin as Slurm's own (%.60s)", type);
}

/* The process id of a slurmd on this machine; 0: there is none. */
static int find_slurmd(void)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    char path[300], name[32];
    int pid = 0;

    while (dir && !pid && (entry = readdir(dir))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
        read_line(path, name, sizeof(name));
        if (strcmp(name, "slurmd") == 0)
            pid = atoi(entry->d_name);
    }
    if (dir)
        closedir(dir);
    return pid;
}

static void check_apparmor(struct findings *f)
{
    char path[64], profile[LABEL_MOST];
    int pid = find_slurmd();

    if (!pid)
        return; /* a login node: srun runs as the user is confined */
    snprintf(path, sizeof(path), "/proc/%d/attr/current", pid);
    read_line(path, profile, sizeof(profile));
    if (!profile[0])
        findings_add(f, FINDING_UNCHECKED, "label",
                     "AppArmor is on, and slurmd's profile cannot be read "
                     "(%s); ask as root",
                     path);
    else if (strcmp(profile, "unconfined") != 0)
        findings_add(f, FINDING_UNCHECKED, "label",
                     "whether slurmd's AppArmor profile (%.100s) lets it read "
                     "the plugin and the cache; look for DENIED in dmesg",
                     profile);
    else
        findings_add(f, FINDING_GOOD, "label",
                     "AppArmor does not confine slurmd");
}

void doctor_check_label(struct findings *findings, const char *path)
{
    char selinux[8], apparmor[8];

    read_line("/sys/fs/selinux/enforce", selinux, sizeof(selinux));
    read_line("/sys/module/apparmor/parameters/enabled", apparmor,
              sizeof(apparmor));
    if (selinux[0])
        check_selinux(findings, path);
    if (apparmor[0] == 'Y')
        check_apparmor(findings);
    if (!selinux[0] && apparmor[0] != 'Y')
        findings_add(findings, FINDING_GOOD, "label",
                     "neither SELinux nor AppArmor is on here");
}
