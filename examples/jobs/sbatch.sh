#!/bin/bash
#SBATCH --job-name=bert
#SBATCH --partition=research
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=1-12:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --output=bert-%j.log

echo "started in $PWD with GPUs $CUDA_VISIBLE_DEVICES"
