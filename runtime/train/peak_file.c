/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/peak_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/train/cache_file.h"

/* A new value replaces the known one only if it is larger by this factor; less
 * is noise. */
#define BEATEN 1.002
/* Lines that are kept: the last that were written. */
enum { MOST = 200, LINE = 400 };

static void read_processor(char *name, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[LINE];

    snprintf(name, size, "processor");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            snprintf(name, size, "%s", strchr(line, ':') + 2);
            name[strcspn(name, "\n")] = '\0';
            break;
        }
    if (f)
        fclose(f);
}

void plait_peak_key(const struct plait_session *s, enum plait_dtype type,
                    char *key, size_t size)
{
    char name[100];

    read_processor(name, sizeof(name));
    snprintf(key, size,
             "%s, %s, %s, %d ranks of %d threads, %d on a node of %ld cores",
             name, plait_cpu_isa(NULL), plait_dtype_name(type),
             s->mesh->world_size, s->world.threads, s->world.node_ranks,
             sysconf(_SC_NPROCESSORS_ONLN));
}

static char *file_path(void)
{
    return plait_cache_path("PLAIT_PEAKS", "peaks");
}

/* The value of a line "FLOPS KEY"; 0: it has another key, or is damaged. */
static double value_of(const char *line, const char *key)
{
    size_t n = strlen(key);
    double flops;
    int used = 0;

    if (sscanf(line, "%lf %n", &flops, &used) < 1 || used == 0 ||
        strncmp(line + used, key, n) != 0 ||
        (line[used + n] != '\n' && line[used + n] != '\0'))
        return 0;
    return isfinite(flops) && flops > 0 ? flops : 0;
}

double plait_peak_known(const char *key)
{
    char *path = file_path(), line[LINE];
    FILE *f = path ? fopen(path, "re") : NULL;
    double flops = 0;

    while (f && fgets(line, sizeof(line), f))
        flops = fmax(flops, value_of(line, key));
    if (f)
        fclose(f);
    free(path);
    return flops;
}

/* Copy the last MOST lines, without those of this key. */
static void copy_others(const char *path, const char *key, FILE *out)
{
    FILE *in = fopen(path, "re");
    char line[LINE];
    int n = 0, skip;

    while (in && fgets(line, sizeof(line), in))
        n++;
    skip = n - MOST;
    if (in)
        rewind(in);
    while (in && fgets(line, sizeof(line), in))
        if (--skip < 0 && strchr(line, '\n') && value_of(line, key) <= 0)
            fputs(line, out);
    if (in)
        fclose(in);
}

void plait_peak_keep(const char *key, double flops)
{
    char *path = file_path(), *beside;
    FILE *out;

    if (path && flops > BEATEN * plait_peak_known(key) &&
        (out = plait_cache_begin(path, &beside))) {
        copy_others(path, key, out);
        fprintf(out, "%.6g %s\n", flops, key);
        plait_cache_end(path, out, beside);
    }
    free(path);
}
