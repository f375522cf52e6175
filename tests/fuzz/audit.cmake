cl_fuzz(audit_record DEPS audit base)
cl_fuzz(audit_frame DEPS audit base)
