"""The paper's theory on problems where every constant is known: convergence, Pareto optimality, Pareto stationarity."""
