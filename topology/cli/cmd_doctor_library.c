/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/base/error.h"
#include "topology/base/hash.h"
#include "topology/cli/cmd_doctor.h"

/* Whether Slurm can load the plugin on this host. A broken one may kill who
 * loads it: its headers are read first, and a child process loads it. */

enum { SECONDS_MOST = 20, WHY_MOST = 256 };

struct library {
    struct doctor *doctor;
    const struct plugin_line *line;
    char path[DOCTOR_PATH];
};

__attribute__((format(printf, 2, 3))) static void
add_bad(const struct library *library, const char *format, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    findings_add(library->doctor->findings, FINDING_BAD, "plugin",
                 "%.150s %s%s", library->path, text,
                 strcmp(library->line->mode, "required")
                     ? ""
                     : "; as it is required, every job fails here");
    library->doctor->broken = 1;
}

int doctor_search_plugins(const struct doctor *doctor, const char *name,
                          char dirs[DOCTOR_PATH], char path[DOCTOR_PATH])
{
    char list[DOCTOR_PATH], full[2 * DOCTOR_PATH], *save;

    doctor_setting(doctor, "PluginDir", dirs, DOCTOR_PATH);
    snprintf(list, sizeof(list), "%s", dirs);
    for (char *dir = strtok_r(list, ":", &save); dir;
         dir = strtok_r(NULL, ":", &save)) {
        snprintf(full, sizeof(full), "%s/%s", dir, name);
        if (access(full, F_OK) == 0 && strlen(full) < DOCTOR_PATH) {
            memcpy(path, full, strlen(full) + 1);
            return 0;
        }
    }
    return -1;
}

/* 0, or -1 with the finding. */
static int find_library(struct library *library)
{
    const char *name = library->line->name;
    int absolute = name[0] == '/';
    char dirs[DOCTOR_PATH] = "";

    snprintf(library->path, sizeof(library->path), "%s", name);
    if (absolute ? access(name, F_OK) == 0
                 : doctor_search_plugins(library->doctor, name, dirs,
                                         library->path) == 0)
        return 0;
    if (absolute && errno != ENOENT)
        add_bad(library, "cannot be reached: %s", strerror(errno));
    else if (!absolute && !dirs[0])
        findings_add(library->doctor->findings, FINDING_UNCHECKED, "plugin",
                     "where %.200s is: only the controller knows PluginDir, "
                     "and it does not answer",
                     name);
    else
        add_bad(library,
                "does not exist%s%.150s; install the package that was built "
                "for this Slurm, or remove the line (%.150s)",
                absolute ? "" : ", in ", dirs, library->line->where);
    return -1;
}

static int check_rights(const struct library *library)
{
    struct statvfs system;
    struct stat st;
    int rc = doctor_user_reads(library->path);

    if (rc > 0) {
        int known = stat(library->path, &st) == 0;

        add_bad(library, "cannot be read by users: %s%s%.0o; chmod 755",
                strerror(rc), known ? ", mode " : ", mode unknown ",
                known ? st.st_mode & 07777 : 0);
        return -1;
    }
    if (rc < 0)
        findings_add(library->doctor->findings, FINDING_UNCHECKED, "plugin",
                     "whether users can read %.300s", library->path);
    if (stat(library->path, &st) == 0 && (st.st_mode & S_IWOTH)) {
        add_bad(library, "can be written by everybody, and slurmd runs it as "
                         "root; chmod 755");
        return -1;
    }
    if (statvfs(library->path, &system) == 0 && (system.f_flag & ST_NOEXEC)) {
        add_bad(library, "lies on a file system that is mounted noexec, from "
                         "which nothing can be loaded; move it, or mount -o "
                         "remount,exec");
        return -1;
    }
    return 0;
}

/* In a child. The release that a plugin was built for is a constant in it. */
static void load(void *arg, int fd)
{
    void *plugin = dlopen(arg, RTLD_LAZY | RTLD_LOCAL);
    const uint32_t *version = plugin ? dlsym(plugin, "plugin_version") : NULL;
    const char *why = version ? NULL : dlerror();

    if (version)
        dprintf(fd, "+%u", *version);
    else
        dprintf(fd, "-%s", why ? why : "it has no plugin_version");
}

/* "libhwloc.so.15: cannot open shared object file: No such file or directory"
 */
static void explain_load(const struct library *library, const char *why)
{
    const char *at = strstr(why, ": cannot open shared object file");
    int n = at ? (int)(at - why) : 0;

    if (at && strncmp(why, library->path, (size_t)n) != 0)
        add_bad(library,
                "needs %.*s, which this machine lacks; install its package "
                "(Debian: libhwloc15, libyaml-0-2, libexpat1; RPM: hwloc-libs, "
                "libyaml, expat)",
                n > 100 ? 100 : n, why);
    else if (strstr(why, "undefined symbol: spank_") ||
             strstr(why, "undefined symbol: slurm_"))
        findings_add(library->doctor->findings, FINDING_UNCHECKED, "plugin",
                     "for which Slurm %.200s was built: it loads inside of "
                     "Slurm alone (linked with -z now)",
                     library->path);
    else
        add_bad(library, "cannot be loaded: %.250s", why);
}

static int check_release(const struct library *library, uint32_t version)
{
    const struct doctor *doctor = library->doctor;
    unsigned major = version >> 16 & 0xff, minor = version >> 8 & 0xff;

    if (!doctor->major) {
        findings_add(doctor->findings, FINDING_UNCHECKED, "plugin",
                     "whether %.200s, built for Slurm %u.%02u, fits this "
                     "Slurm, which does not report its release",
                     library->path, major, minor);
        return 0;
    }
    if ((int)major == doctor->major && (int)minor == doctor->minor) {
        findings_add(doctor->findings, FINDING_GOOD, "plugin",
                     "%s is for Slurm %d.%02d", library->path, doctor->major,
                     doctor->minor);
        return 0;
    }
    add_bad(library,
            "was built for Slurm %u.%02u, and this is %d.%02d, which refuses "
            "it; rebuild it against this Slurm's headers",
            major, minor, doctor->major, doctor->minor);
    return -1;
}

static int check_one(struct library *library)
{
    struct plait_error err;
    char *said;
    size_t size;
    int rc = -1;

    if (find_library(library) < 0 || check_rights(library) < 0)
        return -1;
    if (doctor_elf_check(library->path, &err) < 0) {
        add_bad(library, "cannot be loaded: %s; install it again", err.text);
        return -1;
    }
    said = plait_capture_call(load, library->path, SECONDS_MOST, &size);
    if (!said)
        add_bad(library, "cannot be loaded: %s",
                errno == ETIMEDOUT ? "loading it does not end"
                                   : strerror(errno));
    else if (!*said)
        add_bad(library, "kills the process that loads it; install it again");
    else if (*said == '-')
        explain_load(library, said + 1);
    else
        rc = check_release(library, (uint32_t)strtoul(said + 1, NULL, 10));
    free(said);
    if (rc == 0 && !library->doctor->library[0])
        snprintf(library->doctor->library, sizeof(library->doctor->library),
                 "%s", library->path);
    if (rc == 0)
        doctor_check_label(library->doctor->findings, library->path);
    return rc;
}

void doctor_check_library(struct doctor *doctor)
{
    for (int i = 0; i < doctor->nlines; i++) {
        struct library library = {doctor, &doctor->lines[i], ""};
        int before = 0;

        while (strcmp(doctor->lines[before].name, library.line->name) != 0)
            before++;
        if (before == i)
            check_one(&library);
    }
}

void doctor_version(const struct doctor *doctor, char *text, size_t size)
{
    FILE *file = doctor->library[0] ? fopen(doctor->library, "re") : NULL;
    uint64_t hash = PLAIT_HASH_START;
    char block[8192];
    size_t n;

    while (file && (n = fread(block, 1, sizeof(block), file)) > 0)
        hash = plait_hash_bytes(hash, block, n);
    if (file)
        snprintf(text, size, "plait %s, plugin %08x", PACKAGE_VERSION,
                 (unsigned)(hash ^ hash >> 32));
    else
        snprintf(text, size, "plait %s, no plugin", PACKAGE_VERSION);
    if (file)
        fclose(file);
}
