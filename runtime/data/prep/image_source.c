/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/image_source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether the file is NPY: by its first byte, which no text begins with, or by
 * its name, so that a damaged one is not read as CSV. -1 with an error. */
static int is_npy(const char *path, struct plait_error *err)
{
    size_t n = strlen(path);
    struct stat st;
    FILE *file;
    int c;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return plait_errorf(err,
                            "%s: not a regular file; it must be read "
                            "twice",
                            path);
    }
    file = fopen(path, "re");
    if (!file)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    errno = 0;
    c = getc(file);
    if (ferror(file)) {
        plait_errorf(err, "%s: cannot read: %s", path, strerror(errno));
        fclose(file);
        return -1;
    }
    fclose(file);
    return c == 0x93 || (n > 4 && !strcmp(path + n - 4, ".npy"));
}

struct plait_image_source *
plait_image_source_create(const char *path, enum plait_label_place labels,
                          const char *label_file, struct plait_error *err)
{
    int npy = is_npy(path, err);

    if (npy < 0)
        return NULL;
    if (!npy && labels != PLAIT_LABEL_FILE)
        return plait_image_csv_create(path, labels, err);
    if (npy && (labels == PLAIT_LABEL_FILE || labels == PLAIT_LABEL_NONE))
        return plait_image_npy_create(
            path, labels == PLAIT_LABEL_FILE ? label_file : NULL, err);
    errno = EINVAL;
    plait_errorf(err,
                 npy ? "%s: an NPY file has no column of labels: --labels "
                       "must be the NPY file of the labels, or none"
                     : "%s: the labels of a CSV file are in it: --labels must "
                       "be first, last or none",
                 path);
    return NULL;
}

void plait_image_source_destroy(struct plait_image_source *s)
{
    int saved = errno;

    if (s)
        s->reader->destroy(s);
    errno = saved;
}

int plait_image_source_next(struct plait_image_source *s,
                            struct plait_error *err)
{
    return s->reader->next(s, err);
}

int plait_image_source_rewind(struct plait_image_source *s,
                              struct plait_error *err)
{
    return s->reader->rewind(s, err);
}

int plait_image_label(struct plait_image_source *s, const char *path,
                      int64_t index, double value, struct plait_error *err)
{
    if (value >= 0 && value <= 255 && value == floor(value)) {
        s->label = (int)value;
        return 0;
    }
    errno = ERANGE;
    return plait_errorf(err,
                        "%s: image %lld has the label %g; labels are whole "
                        "numbers from 0 to 255",
                        path, (long long)index, value);
}
