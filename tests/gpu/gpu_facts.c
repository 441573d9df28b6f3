/* SPDX-License-Identifier: Apache-2.0 */
/* Prints one JSON document: the GPUs that this process sees, as Plait sees
 * them, and their data sheets. --count prints only how many there are. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "topology/job/gpu_types.h"

static void print_sheet(const struct plait_gpu_type *t)
{
    printf("{\"type\": \"%s\", \"flops16\": %g, \"flops32\": %g, "
           "\"flops8\": %g, \"memory\": %g, \"memory_bw\": %g, "
           "\"link_bw\": %g}",
           t->name, t->flops16, t->flops32, t->flops8, t->memory, t->memory_bw,
           t->link_bw);
}

static void print_gpu(const struct plait_gpu_facts *f)
{
    const char *type = plait_gpu_type_guess(f->name);
    struct plait_error err = {""};
    struct plait_gpu_type sheet;

    printf("{\"name\": \"%s\", \"busid\": \"%s\", \"capability\": \"%d.%d\", "
           "\"processors\": %d, \"memory\": %zu, \"driver\": \"%d.%d\", "
           "\"runtime\": \"%d.%d\", \"attention\": \"%s\", \"sheet\": ",
           f->name, f->busid, f->capability / 10, f->capability % 10,
           f->processors, f->memory, f->driver / 1000, f->driver % 1000 / 10,
           f->api / 1000, f->api % 1000 / 10, f->attention);
    if (type != NULL && plait_gpu_type_find(type, &sheet, &err) == 0)
        print_sheet(&sheet);
    else
        printf("null");
    printf("}");
}

int main(int argc, char **argv)
{
    const char *why = NULL;
    const struct plait_ops *ops = plait_ops_cuda(&why);
    struct plait_gpu_facts facts;
    int n = 0;

    while (ops != NULL && ops->gpu_facts(n, &facts) == 0)
        n++;
    if (argc > 1 && strcmp(argv[1], "--count") == 0) {
        printf("%d\n", n);
        return 0;
    }
    printf("{\"gpus\": [");
    for (int i = 0; i < n && ops->gpu_facts(i, &facts) == 0; i++) {
        printf(i > 0 ? ",\n" : "\n");
        print_gpu(&facts);
    }
    printf("],\n\"types\": [");
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++) {
        printf(i > 0 ? ",\n" : "\n");
        print_sheet(&plait_gpu_types[i]);
    }
    printf("]}\n");
    if (ops == NULL)
        fprintf(stderr, "gpu_facts: %s\n", why);
    return ops == NULL;
}
