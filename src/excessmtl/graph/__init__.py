"""What the losses were computed from: shared parameters, the representation, and what each loss reaches."""
