# A batch job on SLURM; where there is no SLURM its script runs as the queue would run it.
# pages: docs/report.md
# answer: Sleeping: saves up to .* `read`, job.py:10
cat > job.sbatch <<'BATCH'
#!/bin/bash
#SBATCH --cpus-per-task=2
dask-efficiency run --save-to runs job.py
BATCH
if sinfo >/dev/null 2>&1; then sbatch --wait --output job.log job.sbatch; cat job.log; else bash job.sbatch 2>&1; fi
dask-efficiency report runs/job-*.json
