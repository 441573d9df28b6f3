# SPDX-License-Identifier: Apache-2.0
# In a Spack repository as packages/plait/package.py; then
#   spack install plait +slurm ^slurm@22.05:22.05.99
from spack.package import *


class Plait(AutotoolsPackage, CudaPackage):
    """Tensor, pipeline and data parallelism as flags of Slurm's srun: a
    planner, a SPANK plugin and a trainer for GPT, Llama and image models."""

    homepage = "https://plait.example"
    url = "https://plait.example/plait-0.9.0.tar.xz"
    git = "https://plait.example/plait.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Train over MPI")
    variant("slurm", default=True, description="Build Slurm's plugin")
    variant("sentencepiece", default=True, description="SentencePiece models")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("autoconf", type="build", when="@main")
    depends_on("automake", type="build", when="@main")
    depends_on("libtool", type="build", when="@main")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2:")
    depends_on("libyaml")
    depends_on("jansson")
    depends_on("expat")
    depends_on("zlib-api")
    depends_on("libdeflate")
    depends_on("zstd")
    depends_on("xz")
    depends_on("utf8proc")
    depends_on("onednn")
    depends_on("openblas threads=openmp")
    depends_on("mpi", when="+mpi")
    depends_on("slurm", when="+slurm")
    depends_on("sentencepiece", when="+sentencepiece")
    depends_on("nccl", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=90")

    def configure_args(self):
        args = self.with_or_without("mpi")
        args += self.with_or_without("sentencepiece")
        if self.spec.satisfies("+slurm"):
            # a Slurm of Spack's is never asked where its plugins are
            args.append("--with-slurm=" + self.spec["slurm"].prefix)
            args.append("--with-slurm-plugindir=" + self.prefix.lib.slurm)
        else:
            args.append("--without-slurm")
        if self.spec.satisfies("+cuda"):
            args.append("--with-cuda=" + self.spec["cuda"].prefix)
            args.append(
                "--with-nvcc-gencode="
                + " ".join(self.cuda_flags(self.spec.variants["cuda_arch"].value))
            )
        else:
            args.append("--without-cuda")
        return args
