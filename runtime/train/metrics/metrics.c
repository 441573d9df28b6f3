/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/metrics/metrics.h"
#include "topology/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct plait_metrics_file {
    FILE *out;
};

/* Offset of the first line that is unfinished or of a step after `step`; -1
 * with errno. */
static long find_cut(FILE *f, int64_t step)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t got;
    int64_t at;
    long end = 0;

    while (end >= 0 && (got = getline(&line, &room, f)) > 0) {
        if (sscanf(line, "{\"step\":%" SCNd64, &at) != 1 || at > step ||
            line[got - 1] != '\n')
            break;
        end = ftell(f);
    }
    if (end >= 0 && got < 0 && !feof(f))
        end = -1; /* do not cut off what could not be read */
    free(line);
    return end;
}

static int cut_after(FILE *f, int64_t step)
{
    long end = find_cut(f, step);

    if (end < 0 || fseek(f, end, SEEK_SET) < 0)
        return -1;
    return ftruncate(fileno(f), end);
}

/* Open an existing file and cut it off after `step`. Pipes and terminals are
 * not cut. */
static FILE *reopen(const char *path, int64_t step)
{
    FILE *f = fopen(path, "r+e");
    struct stat st;
    int saved;

    if (!f || (fstat(fileno(f), &st) == 0 &&
               (!S_ISREG(st.st_mode) || cut_after(f, step) == 0)))
        return f;
    saved = errno;
    fclose(f);
    errno = saved;
    return NULL;
}

struct plait_metrics_file *plait_metrics_create(const char *path, int64_t step,
                                                struct plait_error *err)
{
    struct plait_metrics_file *file = calloc(1, sizeof(*file));

    if (!file) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    errno = ENOENT;
    if (step > 0)
        file->out = reopen(path, step);
    if (!file->out && errno == ENOENT)
        file->out = fopen(path, "we");
    if (file->out)
        return file;
    plait_errorf(err, "log.metrics: %s: %s", path, strerror(errno));
    plait_metrics_destroy(file);
    return NULL;
}

/* JSON knows neither NaN nor infinity. */
static void put_number(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ",\"%s\":%.9g", name, value);
    else
        fprintf(out, ",\"%s\":null", name);
}

/* {"tp":1234,...}, of the groups that transferred anything. */
static void put_groups(FILE *out, const char *name,
                       const uint64_t bytes[PLAIT_NCOMMS])
{
    const char *comma = "";

    fprintf(out, ",\"%s\":{", name);
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        if (bytes[i] == 0)
            continue;
        fprintf(out, "%s\"%s\":%" PRIu64, comma, plait_mesh_comm_names[i],
                bytes[i]);
        comma = ",";
    }
    fputc('}', out);
}

/* {"tp":0.12,...}, seconds, of the groups that were waited for. */
static void put_waits(FILE *out, const double wait[PLAIT_NCOMMS])
{
    const char *comma = "";

    fputs(",\"comm_s_groups\":{", out);
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        if (!(wait[i] > 0))
            continue;
        fprintf(out, "%s\"%s\":%.6g", comma, plait_mesh_comm_names[i], wait[i]);
        comma = ",";
    }
    fputc('}', out);
}

/* {"news":3.21,...}, of sets that have names. */
static void put_val_sets(FILE *out, const struct plait_metrics *m)
{
    if (!m->val.sets)
        return;
    fputs(",\"val_loss_sets\":", out);
    for (int i = 0; i < m->val.sets->n; i++) {
        fprintf(out, "%c\"%s\":", i ? ',' : '{', m->val.sets->at[i].name);
        if (isfinite(m->val.losses[i]))
            fprintf(out, "%.9g", m->val.losses[i]);
        else
            fputs("null", out);
    }
    fputc('}', out);
}

static void put_slowest(FILE *out, const struct plait_metrics *m)
{
    if (m->slowest_rank < 0)
        return;
    fprintf(out, ",\"slowest_rank\":%d", m->slowest_rank);
    put_number(out, "rank_s_min", m->rank_s[0]);
    put_number(out, "rank_s_median", m->rank_s[2]);
    put_number(out, "rank_s_max", m->rank_s[1]);
}

static void put_stages(FILE *out, const struct plait_metrics *m)
{
    fputs(",\"mem_bytes_stages\":[", out);
    for (int i = 0; i < m->nstages; i++)
        fprintf(out, "%s%.0f", i ? "," : "", m->stage_bytes[i]);
    fputc(']', out);
}

static void put_observation(FILE *out, const struct plait_metrics *m)
{
    put_number(out, "noise_scale", m->seen.noise_scale);
    put_number(out, "loss_z", m->seen.loss_z);
    put_number(out, "grad_norm_z", m->seen.norm_z);
    if (m->seen.outlier)
        fputs(",\"outlier\":true", out);
    if (m->skipped)
        fputs(",\"skipped\":true", out);
}

static void put_shares(FILE *out, const char *name,
                       const double seconds[PLAIT_NSHARES])
{
    static const char *const names[PLAIT_NSHARES] = {
        [PLAIT_SHARE_STEP] = "step",
        [PLAIT_SHARE_PRODUCTS] = "products",
        [PLAIT_SHARE_ATTENTION] = "attention",
        [PLAIT_SHARE_TP] = "tp",
        [PLAIT_SHARE_CP] = "cp",
        [PLAIT_SHARE_EP] = "ep",
        [PLAIT_SHARE_DP] = "dp",
        [PLAIT_SHARE_BUBBLE] = "bubble",
        [PLAIT_SHARE_REST] = "rest",
    };

    fprintf(out, ",\"%s\":{", name);
    for (int i = 0; i < PLAIT_NSHARES; i++)
        if (isfinite(seconds[i]))
            fprintf(out, "%s\"%s\":%.6g", i ? "," : "", names[i], seconds[i]);
        else
            fprintf(out, "%s\"%s\":null", i ? "," : "", names[i]);
    fputc('}', out);
}

int plait_metrics_write(struct plait_metrics_file *file,
                        const struct plait_metrics *m)
{
    FILE *out = file->out;

    fprintf(out, "{\"step\":%" PRId64, m->step);
    put_number(out, "loss", m->loss);
    if (!isnan(m->mtp_loss))
        put_number(out, "mtp_loss", m->mtp_loss);
    if (!isnan(m->loss_tokens))
        fprintf(out, ",\"loss_tokens\":%.0f", m->loss_tokens);
    put_number(out, "grad_norm", m->grad_norm);
    if (!isnan(m->max_logit))
        put_number(out, "max_logit", m->max_logit);
    put_number(out, "lr", m->lr);
    fprintf(out, ",\"global_batch\":%d", m->batch);
    put_observation(out, m);
    fprintf(out, ",\"tokens\":%" PRId64, m->tokens);
    put_number(out, "tokens_per_s", m->tokens_per_s);
    put_number(out, "mfu", m->mfu);
    put_number(out, "mfu_causal", m->mfu_causal);
    put_number(out, "step_s", m->step_s);
    fprintf(out, ",\"mem_bytes\":%zu", m->mem_bytes);
    if (m->host_bytes > 0)
        fprintf(out, ",\"host_bytes\":%zu", m->host_bytes);
    put_stages(out, m);
    put_slowest(out, m);
    put_number(out, "comm_s", m->comm_s);
    put_number(out, "comm_hidden_s", m->comm_hidden_s);
    put_waits(out, m->comm_wait);
    put_groups(out, "comm_bytes", m->comm_bytes);
    if (!isnan(m->val.loss)) {
        put_number(out, "val_loss", m->val.loss);
        put_val_sets(out, m);
    }
    if (!isnan(m->val.accuracy))
        put_number(out, "accuracy", m->val.accuracy);
    if (m->shares) {
        put_shares(out, "planned_s", m->shares->planned);
        put_shares(out, "measured_s", m->shares->measured);
    }
    if (m->saved_step >= 0)
        fprintf(out, ",\"saved_step\":%" PRId64, m->saved_step);
    if (m->save_s > 0)
        put_number(out, "save_s", m->save_s);
    if (!isnan(m->goodput))
        put_number(out, "goodput", m->goodput);
    if (!isnan(m->goodput_expected))
        put_number(out, "goodput_expected", m->goodput_expected);
    fprintf(out, ",\"time\":%.3f}\n", plait_clock_unix());
    if (fflush(out) != 0)
        return -1;
    if (!ferror(out))
        return 0;
    errno = EIO; /* the failed write's own errno is gone */
    return -1;
}

void plait_metrics_destroy(struct plait_metrics_file *file)
{
    int saved = errno;

    if (!file)
        return;
    if (file->out)
        fclose(file->out);
    free(file);
    errno = saved;
}
