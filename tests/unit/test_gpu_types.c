/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tap.h"
#include "topology/job/gpu_types.h"

static void test_gpu_names(void)
{
    char all[PLAIT_NGPU_TYPES * 17] = "";
    struct plait_gpu_type gpu;
    struct plait_error err;

    for (int i = 0; i < PLAIT_NGPU_TYPES; i++) {
        const char *name = plait_gpu_types[i].name;

        ok(memchr(name, '\0', sizeof(plait_gpu_types[i].name)) != NULL,
           "%.15s has at most 15 letters", name);
        strcat(all, i ? " " : "");
        strcat(all, name);
    }
    ok(strcmp(plait_gpu_type_names(), all) == 0, "the list names all types");
    ok(plait_gpu_type_find("h1000", &gpu, &err) == -1 &&
           strncmp(err.text,
                   "no GPU type \"h1000\"; did you mean h100? There are ",
                   50) == 0 &&
           strcmp(err.text + 50, all) == 0,
       "an unknown GPU type is refused with the list");
}

/* What drivers and the PCI table call each type; NULL: none is known. */
static const char *const models[][2] = {
    {"Tesla V100-SXM3-32GB", "v100-32g"},
    {"Tesla V100-SXM2-16GB", NULL},
    {"NVIDIA A100-SXM4-40GB", "a100-40g"},
    {"NVIDIA A100 80GB PCIe", "a100-80g"},
    {"NVIDIA H100 80GB HBM3", "h100"},
    {"NVIDIA H200", "h200"},
    {"NVIDIA GH200 480GB", "gh200"},
    {"NVIDIA GH200 144G HBM3e", NULL},
    {"NVIDIA H100 PCIe", "h100-pcie"},
    {"NVIDIA H100 NVL", "h100-nvl"},
    {"NVIDIA H100 64GB HBM2", NULL},
    {"NVIDIA H200 NVL", NULL},
    {"NVIDIA H20", "h20"},
    {"NVIDIA H800", "h800"},
    {"NVIDIA H800 PCIe", NULL},
    {"NVIDIA A100-SXM-64GB", "a100-64g"},
    {"NVIDIA B200", "b200"},
    {"NVIDIA B300 SXM6 AC", "b300"},
    {"NVIDIA GB200", "gb200"},
    {"NVIDIA GB300", "gb300"},
    {"NVIDIA L40S", "l40s"},
    {"NVIDIA L40", NULL},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
    {"Instinct MI250X", "mi250x"},
    {"Instinct MI300A", "mi300a"},
    {"AMD Instinct MI300X OAM", "mi300x"},
    {"Instinct MI325X", "mi325x"},
    {"AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2", "mi250x"},
    {"Instinct MI350X", "mi350x"},
    {"AMD Instinct MI355X", "mi355x"},
    {"Intel(R) Data Center GPU Max 1550", "pvc"},
    {"Intel(R) Data Center GPU Max 1100", NULL},
};

static void test_guesses(void)
{
    bool guessed[PLAIT_NGPU_TYPES] = {false};

    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
        const char *type = plait_gpu_type_guess(models[i][0]);

        ok(type && models[i][1] ? strcmp(type, models[i][1]) == 0
                                : type == models[i][1],
           "%s is %s", models[i][0], type ? type : "no known type");
        for (int k = 0; type && k < PLAIT_NGPU_TYPES; k++)
            guessed[k] |= strcmp(plait_gpu_types[k].name, type) == 0;
    }
    for (int k = 0; k < PLAIT_NGPU_TYPES; k++)
        ok(guessed[k] || strcmp(plait_gpu_types[k].name, "cpu") == 0,
           "a product above is %s", plait_gpu_types[k].name);
}

int main(void)
{
    test_gpu_names();
    test_guesses();
    return done_testing();
}
