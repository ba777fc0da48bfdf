"""What `import gpu_curate as gc` offers: each call on columns of texts, on a run's folder, or on a recipe. `gpu_curate`
imports these modules when a name is first asked for."""
