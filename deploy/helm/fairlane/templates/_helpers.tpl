{{- /* At most 30 characters: with "-worker-" and a worker's name, of 24, it is also the value of a label, which has 63. */ -}}
{{- define "fairlane.name" -}}
{{- if contains "fairlane" .Release.Name }}{{ .Release.Name | trunc 30 | trimSuffix "-" }}{{ else }}{{ printf "%s-fairlane" .Release.Name | trunc 30 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "fairlane.selector" -}}
app.kubernetes.io/name: fairlane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fairlane.labels" -}}
{{ include "fairlane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fairlane.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{- /* What the pods of the service and of the workers have in common. */ -}}
{{- define "fairlane.pod" -}}
automountServiceAccountToken: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
{{- if not .Values.files.location }}
  - name: data
    persistentVolumeClaim:
      claimName: {{ .Values.files.volume.existingClaim | default (printf "%s-files" (include "fairlane.name" .)) }}
{{- end }}
{{- with .Values.encryption.secret }}
  - name: encryption
    secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- end }}

{{- define "fairlane.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
env:
  - name: FAIRLANE_URL
    valueFrom: { secretKeyRef: { name: {{ .Values.queue.secret }}, key: {{ .Values.queue.key }} } }
  - name: FAIRLANE_BLOBS
    value: {{ .Values.files.location | default "/data/files" | quote }}
{{- if .Values.encryption.secret }}
  - name: FAIRLANE_ENCRYPTION_KEY_FILE
    value: /etc/fairlane/encryption/{{ .Values.encryption.key }}
{{- end }}
{{- range $name, $value := .Values.environment }}
  - name: {{ $name }}
    value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- with .Values.files.environmentSecret }}
envFrom:
  - secretRef: { name: {{ . }} }
{{- end }}
volumeMounts:
  - { name: tmp, mountPath: /tmp }
{{- if not .Values.files.location }}
  - { name: data, mountPath: /data }
{{- end }}
{{- if .Values.encryption.secret }}
  - { name: encryption, mountPath: /etc/fairlane/encryption, readOnly: true }
{{- end }}
{{- end }}
